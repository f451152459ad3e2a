"""A user of a broker that speaks NATS's protocol line by line, and so hears of each thing that is forbidden."""

from __future__ import annotations

import asyncio
import base64
import json

import nkeys


class Speaker:
    """One connection; `join` raises `ConnectionRefusedError` where the broker does not let the user in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._subscriptions = 0

    @classmethod
    async def join(cls, port: int, seed: bytes | None) -> Speaker:
        """Connects as the user of ``seed``, or as nobody."""
        speaker = cls(*await asyncio.open_connection("127.0.0.1", port))
        info = json.loads((await speaker._reader.readline()).removeprefix(b"INFO "))
        options = {"verbose": False, "pedantic": False, "lang": "test", "version": "1", "protocol": 1}
        if seed is not None:
            pair = nkeys.from_seed(seed)
            signature = base64.urlsafe_b64encode(pair.sign(info["nonce"].encode())).rstrip(b"=")
            options |= {"nkey": pair.public_key.decode(), "sig": signature.decode()}
        answers = await speaker._say(f"CONNECT {json.dumps(options)}")
        if answers:
            await speaker.leave()
            raise ConnectionRefusedError(answers[0])
        return speaker

    async def may_publish(self, subject: str) -> bool:
        """Whether the broker takes an empty message on ``subject``."""
        return not await self._say(f"PUB {subject} 0\r\n")

    async def may_subscribe(self, subject: str) -> bool:
        """Whether the broker takes a subscription to ``subject``."""
        self._subscriptions += 1
        return not await self._say(f"SUB {subject} {self._subscriptions}\r\nUNSUB {self._subscriptions}")

    async def leave(self) -> None:
        """Closes the connection."""
        self._writer.close()
        await self._writer.wait_closed()

    async def _say(self, line: str) -> list[str]:
        """Says ``line``; returns the errors in the broker's answer."""
        self._writer.write(f"{line}\r\nPING\r\n".encode())
        errors = []
        while (answer := (await self._reader.readline()).decode()) not in ("PONG\r\n", ""):
            if answer.startswith("-ERR"):
                errors.append(answer)
        return errors
