"""A full store while clients begin and resume streams, and then a store with space again."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import httpx
import nats
from nats.js import api
from nats.js.errors import APIError
from outrider.loadtest.attack.mesh import STORE_BYTES, Mesh
from outrider.loadtest.attack.requests import COMPLETIONS, authorization, body
from outrider.loadtest.attack.verdict import Attack, AttackLog

_LEFT = 600_000
"""Bytes left free on the store."""
_PIECE = 256 << 10
_STREAMS = 24
_FILLER = "attack-filler"
_AGAIN_S = 30.0
"""Seconds after which streams have to resume again once the store has space."""


Fill = Callable[[int], Awaitable[None]]


@asynccontextmanager
async def _limited(mesh: Mesh) -> AsyncIterator[Fill]:
    """Yields a function that fills a JetStream stream until ``left`` bytes of nats-server's limit are free."""
    connection = await nats.connect(mesh.broker.url)
    stream = connection.jetstream()
    await stream.add_stream(name=_FILLER, subjects=[_FILLER], storage=api.StorageType.FILE)

    async def fill(left: int) -> None:
        with suppress(APIError):
            while (free := STORE_BYTES - (await stream.account_info()).storage - left) > 1024:
                await stream.publish(_FILLER, b"a" * min(_PIECE, free - 512))

    try:
        yield fill
    finally:
        await stream.delete_stream(_FILLER)
        await connection.close()


@asynccontextmanager
async def _disk(mesh: Mesh) -> AsyncIterator[Fill]:
    """Yields a function that fills a file until ``left`` bytes of the broker's disk are free."""
    file = mesh.broker.store / _FILLER

    async def fill(left: int) -> None:
        disk = os.statvfs(mesh.broker.store)
        with file.open("ab", buffering=0) as grown, suppress(OSError):
            grown.write(b"a" * max(0, disk.f_bavail * disk.f_frsize - left))

    try:
        yield fill
    finally:
        file.unlink(missing_ok=True)


async def _full(mesh: Mesh, log: AttackLog, filling: AbstractAsyncContextManager[Fill]) -> None:
    async with filling as fill:
        await fill(_LEFT)
        for number in range(_STREAMS):
            await _while_full(mesh, number, log)
            await fill(0)
    await _while_free(mesh, log)


async def _limit_reached(mesh: Mesh, log: AttackLog) -> None:
    await _full(mesh, log, _limited(mesh))


async def _disk_full(mesh: Mesh, log: AttackLog) -> None:
    if mesh.broker.has_disk:
        await _full(mesh, log, _disk(mesh))
    else:
        log.answer("not made: no disk may be mounted here")


async def _while_full(mesh: Mesh, number: int, log: AttackLog) -> None:
    """A stream has to resume, or be refused for now; an answer that the stream is unknown is a problem."""
    status = await _leave_and_resume(mesh, number)
    log.answer(f"full: {status}")
    if status not in ("200", "503"):
        log.problem(f"the store is full: resuming a stream is {status}, not 200 or 503")


async def _while_free(mesh: Mesh, log: AttackLog) -> None:
    """At each gateway, new streams have to resume after a while."""
    for gateway in range(len(mesh.urls)):
        status = await _resume_with_retries(mesh, gateway)
        log.answer(f"free: {status}")
        if status != "200":
            log.problem(f"there is space again: resuming a stream is still {status} after {_AGAIN_S:g} s")


async def _resume_with_retries(mesh: Mesh, gateway: int) -> str:
    """Retries until a new stream resumes with 200; returns the last status."""
    until = time.monotonic() + _AGAIN_S
    while True:
        status = await _leave_and_resume(mesh, gateway)
        if status == "200" or time.monotonic() > until:
            return status
        await asyncio.sleep(0.5)


async def _leave_and_resume(mesh: Mesh, number: int) -> str:
    """Begins a stream, leaves it after its first event and resumes it at the other gateway; returns the status."""
    url, other = mesh.urls[number % len(mesh.urls)], mesh.urls[(number + 1) % len(mesh.urls)]
    headers = authorization(mesh)
    data = body(stream=True, max_tokens=64, seed=number, ignore_eos=True, temperature=1.0)
    async with httpx.AsyncClient(timeout=20, trust_env=False, headers=headers) as http:
        stream = http.stream("POST", url + COMPLETIONS, content=data, headers={"content-type": "application/json"})
        async with stream as answer:
            if answer.status_code != 200:
                return f"{answer.status_code} to begin with" if answer.status_code != 503 else "503"
            async for _ in answer.aiter_bytes():
                break
        resumed = await http.get(f"{other}/v1/streams/{answer.headers['x-request-id']}")
    return str(resumed.status_code)


_WHAT = "while 24 streams are begun, left and resumed; then there is space again."

ATTACKS = [
    Attack("store-limit", f"JetStream's limit is reached {_WHAT}", _limit_reached, refused=True, most_s=240),
    Attack("store-disk", f"The broker's disk is full {_WHAT}", _disk_full, refused=True, most_s=240),
]
