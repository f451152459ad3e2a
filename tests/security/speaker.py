"""A user of a broker that speaks NATS's protocol line by line, and so hears of each thing that is forbidden."""

from __future__ import annotations

import asyncio
import base64
import json

import nkeys


class Speaker:
    """One connection; `join` raises `ConnectionRefusedError` where the broker does not let the user in.

    Attributes:
        nonce: What the broker had the user sign.
    """

    nonce: str

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._subscriptions = 0

    @classmethod
    async def join(
        cls, port: int, seed: bytes | None = None, *, key: str = "", claimed: str = "", signed: str = ""
    ) -> Speaker:
        """Connects as the user of ``seed``, with the API ``key``, or as nobody.

        With ``claimed``, the speaker claims to be the user of that public key, and signs with ``seed``. With
        ``signed``, the speaker signs that, and not what the broker asks for.
        """
        speaker = cls(*await asyncio.open_connection("127.0.0.1", port))
        info = json.loads((await speaker._reader.readline()).removeprefix(b"INFO "))
        speaker.nonce = info["nonce"]
        options = {"verbose": False, "pedantic": False, "lang": "test", "version": "1", "protocol": 1}
        if seed is not None:
            pair = nkeys.from_seed(seed)
            signature = base64.urlsafe_b64encode(pair.sign((signed or speaker.nonce).encode())).rstrip(b"=")
            options |= {"nkey": claimed or pair.public_key.decode(), "sig": signature.decode()}
        if key:
            options |= {"auth_token": key}
        answers = await speaker._say(f"CONNECT {json.dumps(options)}".encode())
        if answers:
            await speaker.leave()
            raise ConnectionRefusedError(answers[0])
        return speaker

    async def may_publish(self, subject: str, data: bytes = b"{") -> bool:
        """Whether the broker takes a message on ``subject``; without ``data``, JetStream would not act on it."""
        return not await self._say(f"PUB {subject} {len(data)}\r\n".encode() + data)

    async def may_subscribe(self, subject: str) -> bool:
        """Whether the broker takes a subscription to ``subject``."""
        self._subscriptions += 1
        return not await self._say(f"SUB {subject} {self._subscriptions}\r\nUNSUB {self._subscriptions}".encode())

    async def subscribe(self, subject: str, times: int) -> list[str]:
        """Subscribes again and again; returns the broker's errors."""
        first = self._subscriptions + 1
        self._subscriptions += times
        return await self._say("\r\n".join(f"SUB {subject} {each}" for each in range(first, first + times)).encode())

    async def last_words(self) -> str:
        """All that the broker says until it ends the connection."""
        return (await self._reader.read()).decode()

    async def leave(self) -> None:
        """Closes the connection."""
        self._writer.close()
        await self._writer.wait_closed()

    async def _say(self, lines: bytes) -> list[str]:
        """Says ``lines``; returns the errors in the broker's answer."""
        self._writer.write(lines + b"\r\nPING\r\n")
        errors = []
        while (answer := (await self._reader.readline()).decode()) not in ("PONG\r\n", ""):
            if answer.startswith("-ERR"):
                errors.append(answer)
        return errors
