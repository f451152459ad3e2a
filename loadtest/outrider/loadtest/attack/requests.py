"""An attacker's requests: bodies over HTTP, and bytes on a bare socket."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
from outrider.loadtest.attack.mesh import ATTACKER, Mesh
from outrider.loadtest.attack.verdict import AttackLog

COMPLETIONS = "/v1/completions"
_ANSWER_S = 60.0
_TRIES = 3
"""Times that a client asks a mesh that says when to come back, as the OpenAI SDK does by default."""


def body(**parameters: Any) -> bytes:
    """A completion's body with ``parameters``."""
    return msgspec.json.encode({"prompt": "def f(", "max_tokens": 32, "seed": 1, **parameters})


def authorization(mesh: Mesh) -> dict[str, str]:
    """The attacker's key as a header."""
    return {"authorization": f"Bearer {mesh.keys[ATTACKER]}"}


async def post(mesh: Mesh, data: bytes, log: AttackLog) -> int:
    """Posts a completion as the attacker; returns the status, or 0 without an answer, which is a problem.

    A 503 that says when to come back is an answer of a busy mesh: the attacker comes back, as a client does.
    """
    for left in reversed(range(_TRIES)):
        status, retry_s = await _post(mesh, data, log)
        if status != 503 or retry_s is None or not left:
            break
        await asyncio.sleep(retry_s)
    return status


async def _post(mesh: Mesh, data: bytes, log: AttackLog) -> tuple[int, float | None]:
    """The status, and the seconds after which to come back if the answer says so."""
    sent = {"content-type": "application/json", **authorization(mesh)}
    try:
        async with httpx.AsyncClient(timeout=_ANSWER_S, trust_env=False) as http:
            answer = await http.post(f"{mesh.url}{COMPLETIONS}", content=data, headers=sent)
    except httpx.TransportError as error:
        log.answer(type(error).__name__)
        log.problem(f"no answer: {type(error).__name__}")
        return 0, None
    log.answer(answer.status_code if answer.status_code < 500 else f"{answer.status_code} {answer.text[:200]}")
    retry_s = answer.headers.get("retry-after")
    return answer.status_code, None if retry_s is None else float(retry_s)


async def expect_survival(mesh: Mesh, bodies: Iterable[bytes], log: AttackLog, what: str) -> None:
    """Posts all of ``bodies`` at once; an answer of 500 or above is a problem."""
    for status in await asyncio.gather(*(post(mesh, data, log) for data in bodies)):
        if status >= 500:
            log.problem(f"{what}: {status}")


class Connection:
    """A bare connection to a gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> bool:
        """Sends ``data``; False if the gateway has closed the connection."""
        try:
            self.writer.write(data)
            await self.writer.drain()
        except OSError:
            return False
        return not self.writer.is_closing() and not self.reader.at_eof()

    async def status(self, seconds: float) -> str:
        """The status that arrives within ``seconds``; otherwise ``closed`` or ``silence``."""
        try:
            async with asyncio.timeout(seconds):
                line = await self.reader.readline()
        except TimeoutError:
            return "silence"
        except OSError:
            return "closed"
        return line.split()[1].decode() if len(line.split()) > 1 else "closed"


@asynccontextmanager
async def open_connection(address: str) -> AsyncIterator[Connection]:
    """Opens a connection to ``address``, a URL or host:port, inside the block."""
    parts = urlsplit(address if "//" in address else f"//{address}")
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        yield Connection(reader, writer)
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def head(target: str, *headers: str, method: str = "POST", length: int | None = None) -> bytes:
    """The head of a request without its final empty line."""
    lines = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", *headers]
    lines += [f"Content-Length: {length}"] if length is not None else []
    return "".join(f"{line}\r\n" for line in lines).encode()


async def drip(connection: Connection, data: bytes, every_s: float, until: float) -> bool:
    """Sends ``data`` over and over, a byte at a time; False if the gateway closed the connection before ``until``."""
    place = 0
    while time.monotonic() < until:
        if not await connection.send(data[place % len(data) : place % len(data) + 1]):
            return False
        place += 1
        await asyncio.sleep(every_s)
    return True
