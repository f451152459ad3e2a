"""Clients that do not read their answers, or go away before their requests are accepted."""

from __future__ import annotations

import asyncio
import random
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import grpc
from outrider.loadtest.attack.mesh import Mesh
from outrider.loadtest.attack.requests import COMPLETIONS, authorization, body, head
from outrider.loadtest.attack.verdict import Attack, AttackLog
from outrider.mesh.bus import Bus
from outrider.mesh.registry import Registry
from outrider.mesh.rpc import channel
from outrider.v1 import sampling_pb2
from outrider.v1 import verifier_pb2 as pb
from outrider.v1.verifier_pb2_grpc import VerifierStub
from outrider.wire.frames import decode_frame
from outrider.wire.ids import pack_ids

_HOLD_S = 15.0
_MANY = 100
_BUFFER = 2048


@asynccontextmanager
async def _unread(mesh: Mesh, gateway: int, seed: int) -> AsyncIterator[None]:
    """Holds a stream without reading it inside the block; the socket buffers as little as the system allows."""
    parts, data = urlsplit(mesh.urls[gateway]), body(stream=True, max_tokens=1500, seed=seed, ignore_eos=True)
    with socket.socket() as connection:
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, (parts.hostname, parts.port))
        key = f"Authorization: {authorization(mesh)['authorization']}"
        lines = head(COMPLETIONS, key, "x-outrider-on-disconnect: continue", length=len(data))
        await loop.sock_sendall(connection, lines + b"\r\n" + data)
        yield


async def _unread_streams(mesh: Mesh, log: AttackLog, count: int) -> None:
    async with AsyncExitStack() as stack:
        for number in range(count):
            await stack.enter_async_context(_unread(mesh, number % len(mesh.urls), number))
            log.answer("taken")
        await asyncio.sleep(_HOLD_S)


async def _one(mesh: Mesh, log: AttackLog) -> None:
    await _unread_streams(mesh, log, 1)


async def _many(mesh: Mesh, log: AttackLog) -> None:
    await _unread_streams(mesh, log, _MANY)


_SUBMITS = 200
_AT_A_TIME = 16
_SOON_S = 0.02
"""Calls are cancelled after 0 to ``_SOON_S`` seconds."""
_FOLLOW_S = 30.0
_TOKENS = 8


async def verifier_addresses(mesh: Mesh) -> list[str]:
    """gRPC addresses of the ready verifiers."""
    bus = Bus()
    await bus.connect(mesh.broker.url, "attack", wait_s=10)
    registry = Registry(bus, "attack", f"attack-{secrets.token_hex(4)}")
    try:
        await registry.start()
        await registry.wait_for("verifier", lambda members: len(members) == len(mesh.urls), 30)
        return [member.address for member in registry.members("verifier")]
    finally:
        registry.leave()
        await bus.close()


async def _cancel_submissions(mesh: Mesh, log: AttackLog) -> None:
    stubs = [VerifierStub(channel(address)) for address in await verifier_addresses(mesh)]
    draw, places = random.Random(1), iter(range(_SUBMITS))

    async def caller() -> None:
        for place in places:
            await _submit(stubs[place % len(stubs)], draw.uniform(0, _SOON_S), log)

    await asyncio.gather(*(caller() for _ in range(_AT_A_TIME)))


async def _submit(stub: VerifierStub, after_s: float, log: AttackLog) -> None:
    """Submits a request, cancels the call and follows the request, which has to end or be unknown."""
    name = f"attack-{secrets.token_hex(8)}"
    sampling = sampling_pb2.SamplingParams(temperature=1.0, seed=1, max_tokens=_TOKENS, ignore_eos=True)
    prompt = pack_ids(range(100, 120))
    call = stub.Submit(pb.SubmitRequest(request_id=name, tenant="attack", prompt=prompt, sampling=sampling))
    over = asyncio.Event()
    call.add_done_callback(lambda _: over.set())
    asyncio.get_running_loop().call_later(after_s, call.cancel)
    await over.wait()
    log.answer(await _finish_of(stub, name, log))


async def _finish_of(stub: VerifierStub, name: str, log: AttackLog) -> str:
    reason = ""
    try:
        async for response in stub.Follow(pb.FollowRequest(request_id=name), timeout=_FOLLOW_S):
            reason = decode_frame(response.frame).finish or reason
    except grpc.aio.AioRpcError as error:
        if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
            log.problem(f"a request was followed for {_FOLLOW_S:g} s without an end")
        return str(error.code().name)
    return str(reason) or "an end without a reason"


ATTACKS = [
    Attack("reader-one", "A client that never reads its stream of 1,500 tokens.", _one),
    Attack("reader-many", "100 clients that never read their streams.", _many),
    Attack(
        "submit-cancelled",
        "200 submissions are cancelled after 0 to 20 ms, and followed.",
        _cancel_submissions,
        most_s=300,
    ),
]
