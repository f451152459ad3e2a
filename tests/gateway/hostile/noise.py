"""Noise, some of it after the beginning of a message, for the interfaces over gRPC and NATS."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import grpc
import nats
from outrider.loadtest.attack.requests import open_connection

from tests.gateway.hostile.case import ANSWER_S, Target

_METHODS = ("Generate", "Complete", "Resume", "Cancel", "ListModels", "Tokenize", "Detokenize", "Nothing")
_STREAMED = ("Generate", "Resume")
_SUBJECTS = ("generate", "generate.pocket", "resume", "cancel", "models", "hello")
_MESSAGES = 300
_BAD = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)


def rubbish(draw: random.Random) -> bytes:
    """Up to 4 kB of noise, some after the beginning of JSON or of a message."""
    noise = draw.randbytes(draw.choice((0, 1, 16, 400, 4096)))
    beginnings = (b"", b"[" * 500, b'{"prompt": ', b'{"request_id": "', b"\x0a\xff\xff\xff\xff\x0f", b"PRI * HTTP/2.0")
    return draw.choice(beginnings) + noise


async def faults_over_grpc(target: Target) -> AsyncIterator[str]:
    """Sends bytes that are no HTTP/2, and calls with bytes that are seldom a message; yields wrong answers."""
    draw = random.Random(1)
    for _ in range(20):
        async with open_connection(target.grpc) as connection:
            await connection.send(rubbish(draw))
    async with grpc.aio.insecure_channel(target.grpc) as channel:
        for number in range(_MESSAGES):
            method = _METHODS[number % len(_METHODS)]
            if fault := await _call(channel, method, rubbish(draw)):
                yield fault


async def _call(channel: grpc.aio.Channel, method: str, data: bytes) -> str:
    kind = channel.unary_stream if method in _STREAMED else channel.unary_unary
    try:
        answer = kind(f"/outrider.v1.Inference/{method}")(data, timeout=ANSWER_S)
        if method in _STREAMED:
            async for _ in answer:
                pass
        else:
            await answer
    except grpc.aio.AioRpcError as error:
        undecoded = "DecodeError" in str(error.details()) or "deserializ" in str(error.details())
        if error.code() in _BAD and not undecoded:
            return f"{method} answered rubbish with {error.code().name}: {error.details()}"
    return ""


async def faults_over_nats(target: Target) -> AsyncIterator[str]:
    """Sends noise to every subject, also as the key; yields missing answers and internal errors."""
    draw = random.Random(2)
    for number in range(_MESSAGES):
        subject = f"outrider.v1.{_SUBJECTS[number % len(_SUBJECTS)]}"
        headers = None if number % 3 else {"Authorization": rubbish(draw).hex()[:500] or "-"}
        try:
            answer = await target.nats.request(subject, rubbish(draw), timeout=ANSWER_S, headers=headers)
        except nats.errors.TimeoutError:
            yield f"{subject} did not answer"
            continue
        if (code := (answer.headers or {}).get("Nats-Service-Error-Code", "OK")).startswith("5"):
            yield f"{subject} answered rubbish with {code}"
