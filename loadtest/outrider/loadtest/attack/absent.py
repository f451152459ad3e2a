"""Clients that do not read their answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

from outrider.loadtest.attack.mesh import Mesh
from outrider.loadtest.attack.requests import COMPLETIONS, authorization, body, head
from outrider.loadtest.attack.verdict import Attack, AttackLog

_HOLD_S = 15.0
_MANY = 100
_BUFFER = 2048


@asynccontextmanager
async def _unread(mesh: Mesh, seed: int) -> AsyncIterator[None]:
    """Holds a stream without reading it inside the block; the socket buffers as little as the system allows."""
    parts, data = urlsplit(mesh.url), body(stream=True, max_tokens=1500, seed=seed, ignore_eos=True)
    with socket.socket() as connection:
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, (parts.hostname, parts.port))
        key = f"Authorization: {authorization(mesh)['authorization']}"
        lines = head(COMPLETIONS, key, "x-outrider-on-disconnect: continue", length=len(data))
        await loop.sock_sendall(connection, lines + b"\r\n" + data)
        yield


async def _many(mesh: Mesh, log: AttackLog) -> None:
    async with AsyncExitStack() as stack:
        for number in range(_MANY):
            await stack.enter_async_context(_unread(mesh, number))
            log.answer("taken")
        await asyncio.sleep(_HOLD_S)


ATTACKS = [Attack("reader-many", "100 clients that never read their streams.", _many)]
