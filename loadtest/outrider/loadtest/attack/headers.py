"""Heads that are too long or too slow, and a slow body; only the slow body needs a key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from outrider.loadtest.attack.mesh import Mesh
from outrider.loadtest.attack.requests import COMPLETIONS, Connection, authorization, drip, head, open_connection
from outrider.loadtest.attack.verdict import Attack, AttackLog

_PIECE = b"a" * (64 << 10)
_ENDLESS = 64 << 20
_ANSWER_S = 20.0
_SLOW = 200
_DRIP_S = 20.0
"""Seconds; longer than a gateway waits for a head."""


async def _pour(connection: Connection, total: int) -> int:
    """Sends up to ``total`` bytes; returns how many the gateway took before it closed the connection."""
    for sent in range(0, total, len(_PIECE)):
        if not await connection.send(_PIECE):
            return sent
    return total


async def _endless(mesh: Mesh, log: AttackLog) -> None:
    """Sends a head of `_ENDLESS` bytes; a problem if the gateway takes all of them."""
    async with open_connection(mesh.url) as connection:
        await connection.send(head("/healthz", method="GET") + b"X-Long: ")
        sent = await _pour(connection, _ENDLESS)
        log.answer(await connection.status(1.0 if sent < _ENDLESS else _ANSWER_S))
        if sent == _ENDLESS:
            log.problem(f"the gateway took a header of {_ENDLESS >> 20} MiB")


async def _slowly(mesh: Mesh, log: AttackLog, send: Callable[[Connection], Awaitable[bool]]) -> int:
    """Runs ``send`` on many connections; returns how many of them stayed open."""

    async def one() -> bool:
        async with open_connection(mesh.url) as connection:
            return await send(connection)

    open_connections = await asyncio.gather(*(one() for _ in range(_SLOW)))
    for is_open in open_connections:
        log.answer("still open" if is_open else "closed")
    return sum(open_connections)


async def _drip_head(mesh: Mesh, log: AttackLog) -> None:
    until = time.monotonic() + _DRIP_S

    async def send(connection: Connection) -> bool:
        await connection.send(head(COMPLETIONS) + b"X-Slow: ")
        return await drip(connection, b"a", 0.25, until)

    if open_connections := await _slowly(mesh, log, send):
        log.problem(f"{open_connections} heads had not come after {_DRIP_S:g} s, and their connections were open")


async def _drip_body(mesh: Mesh, log: AttackLog) -> None:
    until = time.monotonic() + _DRIP_S
    key = f"Authorization: {authorization(mesh)['authorization']}"

    async def send(connection: Connection) -> bool:
        await connection.send(head(COMPLETIONS, key, length=1 << 20) + b'\r\n{"prompt": "')
        return await drip(connection, b"a", 0.25, until)

    await _slowly(mesh, log, send)


ATTACKS = [
    Attack("header-endless", "A header of 64 MiB that does not end.", _endless, cheap=True),
    Attack("header-slow", "200 connections that send four bytes of a header a second.", _drip_head),
    Attack("body-slow", "200 connections that send four bytes of a body a second.", _drip_body),
]
