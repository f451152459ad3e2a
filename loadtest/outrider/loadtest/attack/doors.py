"""Invalid messages at the gateways' front doors for gRPC and NATS."""

from __future__ import annotations

import random

import grpc
import nats
from outrider.loadtest.attack.mesh import Mesh
from outrider.loadtest.attack.requests import authorization, open_connection
from outrider.loadtest.attack.verdict import Attack, AttackLog

_METHODS = ("Generate", "Complete", "Resume", "Cancel", "ListModels", "Tokenize", "Detokenize", "Nothing")
_STREAMED = ("Generate", "Resume")
_SUBJECTS = ("generate", "generate.pocket", "resume", "cancel", "models", "hello")
_MESSAGES = 300
_ANSWER_S = 20.0
_BAD = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)


def rubbish(draw: random.Random) -> bytes:
    """Up to 4 kB of noise, some after the beginning of JSON or of a message."""
    noise = draw.randbytes(draw.choice((0, 1, 16, 400, 4096)))
    beginnings = (b"", b"[" * 500, b'{"prompt": ', b'{"request_id": "', b"\x0a\xff\xff\xff\xff\x0f", b"PRI * HTTP/2.0")
    return draw.choice(beginnings) + noise


async def _grpc(mesh: Mesh, log: AttackLog) -> None:
    draw = random.Random(1)
    for address in mesh.grpcs:
        for _ in range(20):
            await _noise(address, rubbish(draw))
        async with grpc.aio.insecure_channel(address) as channel:
            for _ in range(_MESSAGES // len(_METHODS)):
                for method in _METHODS:
                    await _call(mesh, channel, method, rubbish(draw), log)


async def _noise(address: str, data: bytes) -> None:
    """Sends bytes that are no HTTP/2."""
    async with open_connection(address) as connection:
        await connection.send(data)


async def _call(mesh: Mesh, channel: grpc.aio.Channel, method: str, data: bytes, log: AttackLog) -> None:
    """Calls a method with bytes that are seldom a message; an internal error or a timeout is a problem."""
    kind = channel.unary_stream if method in _STREAMED else channel.unary_unary
    call = kind(f"/outrider.v1.Inference/{method}")
    metadata = tuple(authorization(mesh).items())
    try:
        answer = call(data, metadata=metadata, timeout=_ANSWER_S)
        if method in _STREAMED:
            async for _ in answer:
                pass
        else:
            await answer
    except grpc.aio.AioRpcError as error:
        log.answer(error.code().name)
        if error.code() in _BAD and not _is_undecoded(str(error.details())):
            log.problem(f"{method} answered rubbish with {error.code().name}: {error.details()}")
    else:
        log.answer("OK")


def _is_undecoded(details: str) -> bool:
    """Whether gRPC itself rejected the bytes."""
    return "DecodeError" in details or "deserializ" in details


async def _nats(mesh: Mesh, log: AttackLog) -> None:
    draw, connection = random.Random(2), await nats.connect(mesh.broker.url)
    headers = {"Authorization": authorization(mesh)["authorization"]}
    try:
        for number in range(_MESSAGES):
            subject = f"outrider.v1.{_SUBJECTS[number % len(_SUBJECTS)]}"
            sent = headers if number % 3 else {"Authorization": rubbish(draw).hex()[:500] or "-"}
            try:
                answer = await connection.request(subject, rubbish(draw), timeout=_ANSWER_S, headers=sent)
            except nats.errors.TimeoutError:
                log.problem(f"{subject} did not answer")
                continue
            code = (answer.headers or {}).get("Nats-Service-Error-Code", "OK")
            log.answer(code)
            if code.startswith("5"):
                log.problem(f"{subject} answered rubbish with {code}")
    finally:
        await connection.close()


ATTACKS = [
    Attack("door-grpc", "Noise and broken messages at the gRPC doors.", _grpc, cheap=True),
    Attack("door-nats", "Noise and broken messages at the NATS doors.", _nats),
]
