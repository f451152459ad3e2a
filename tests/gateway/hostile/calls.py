"""Hostile calls of the gRPC API."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from outrider.loadtest.attack.requests import open_connection
from outrider.v1 import inference_pb2 as pb
from outrider.v1.inference_pb2_grpc import InferenceStub

from tests.gateway.hostile.case import ANSWER_S, CLOSED, SERVED, Case, Outcome, Target
from tests.gateway.hostile.connections import ends

_MANY = 300
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_PING = b"\x00\x00\x08\x06\x00\x00\x00\x00\x00" + b"p" * 8
_OPTIONS = (("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1))

Ask = Callable[[Any, Target], Awaitable[Any]]


async def _outcome(answer: Awaitable[Any]) -> Outcome:
    try:
        await answer
    except grpc.aio.AioRpcError as error:
        return Outcome(error.code().name, error.details() or "")
    return Outcome(SERVED)


def _called(name: str, what: str, answer: str, says: str, ask: Ask) -> Case:
    async def run(target: Target) -> Outcome:
        async with grpc.aio.insecure_channel(target.grpc, options=_OPTIONS) as channel:
            return await _outcome(ask(InferenceStub(channel), target))

    return Case(name, "gRPC", what, (answer,), says, run)


def _complete(name: str, what: str, says: str, **fields: Any) -> Case:
    """A completion with ``fields`` that is refused; its prompt is a letter unless they have another."""
    prompt = {} if {"ids", "messages_json"} & fields.keys() else {"text": "a"}
    request = pb.GenerateRequest(**{"sampling": {"max_tokens": 1}, **prompt, **fields})

    async def ask(stub: Any, target: Target) -> Any:
        return await stub.Complete(pb.CompleteRequest(request=request), metadata=target.metadata, timeout=ANSWER_S)

    return _called(name, what, "INVALID_ARGUMENT", says, ask)


def _tokenize(text_bytes: Callable[[Target], int]) -> Ask:
    async def ask(stub: Any, target: Target) -> Any:
        request = pb.TokenizeRequest(text="a" * text_bytes(target))
        return await stub.Tokenize(request, metadata=target.metadata, timeout=ANSWER_S)

    return ask


async def _large_metadata(stub: Any, target: Target) -> Any:
    metadata = (*target.metadata, ("x", "a" * (64 << 10)))
    return await stub.ListModels(pb.ListModelsRequest(), metadata=metadata, timeout=ANSWER_S)


async def _two_keys(stub: Any, target: Target) -> Any:
    metadata = (("authorization", "Bearer a"), ("authorization", "Bearer b"))
    return await stub.ListModels(pb.ListModelsRequest(), metadata=metadata, timeout=ANSWER_S)


async def _no_stream(stub: Any, target: Target) -> Any:
    request = pb.CancelGenerationRequest(request_id="../" * 100)
    return await stub.Cancel(request, metadata=target.metadata, timeout=ANSWER_S)


async def _many_calls(stub: Any, target: Target) -> Any:
    """Many calls at once on one connection."""
    calls = [stub.ListModels(pb.ListModelsRequest(), metadata=target.metadata, timeout=ANSWER_S) for _ in range(_MANY)]
    return await asyncio.gather(*calls)


async def _never_read(stub: Any, target: Target) -> Any:
    """Streams that nobody reads, and a call after them."""
    request = pb.GenerateRequest(text="a", sampling={"max_tokens": 200, "ignore_eos": True})
    streams = [stub.Generate(request, metadata=target.metadata) for _ in range(2)]
    await asyncio.sleep(0.2)
    for stream in streams:
        stream.cancel()
    return await stub.ListModels(pb.ListModelsRequest(), metadata=target.metadata, timeout=ANSWER_S)


def _bytes(name: str, what: str, answer: str, method: str, data: bytes) -> Case:
    """A case that calls ``method`` with bytes that need be no message."""

    async def run(target: Target) -> Outcome:
        async with grpc.aio.insecure_channel(target.grpc) as channel:
            call = channel.unary_unary(f"/outrider.v1.Inference/{method}")
            return await _outcome(call(data, metadata=target.metadata, timeout=ANSWER_S))

    return Case(name, "gRPC", what, (answer,), "", run)


def _wire(name: str, what: str, *parts: bytes) -> Case:
    """A case that sends ``parts``, and waits until the gateway closes the connection."""

    async def run(target: Target) -> Outcome:
        async with open_connection(target.grpc) as connection:
            for part in parts:
                if not await connection.send(part):
                    break
            return Outcome(CLOSED if await ends(connection, ANSWER_S) else "open")

    return Case(name, "gRPC", what, (CLOSED,), "", run)


CASES = [
    _called("grpc-too-large", "a message far over `max_body_bytes`", "RESOURCE_EXHAUSTED", "larger than max",
            _tokenize(lambda target: 2 * target.body_bytes)),
    _called("grpc-large", "a message slightly over `max_body_bytes`", "INVALID_ARGUMENT", "larger than",
            _tokenize(lambda target: target.body_bytes)),
    _called("grpc-long", "a text far over the context", "INVALID_ARGUMENT", "context length",
            _tokenize(lambda target: target.body_bytes // 2)),
    _called("grpc-metadata", "64 KiB of metadata", "RESOURCE_EXHAUSTED", "", _large_metadata),
    _called("grpc-two-keys", "two keys", "INVALID_ARGUMENT", "given several times", _two_keys),
    _called("grpc-no-stream", "a path as the id of a stream to cancel", "NOT_FOUND", "", _no_stream),
    _called("grpc-streams", "300 calls at once on one connection", SERVED, "", _many_calls),
    _called("grpc-never-reading", "streams that nobody reads", SERVED, "", _never_read),
    _complete("grpc-nan", "NaN as the temperature", "temperature must be", sampling={"temperature": float("nan")}),
    _complete("grpc-infinity", "infinity as a bias", "logit_bias", sampling={"logit_bias": {1: float("inf")}}),
    _complete("grpc-ids", "ids of three bytes", "", ids=b"abc"),
    _complete("grpc-json", "messages that are no JSON", "not valid JSON", messages_json="[{"),
    _complete("grpc-nesting", "messages nested 1,000 deep", "nests deeper than 100", messages_json="[" * 1000),
    _complete("grpc-answers", "1,000,000 answers", "n must be", n=1_000_000),
    _complete("grpc-stops", "17 stop strings", "stop must be", sampling={"stop": ["a"] * 17}),
    _bytes("grpc-rubbish", "bytes that are no message", "UNKNOWN", "Complete", b"\x0a\xff\xff\xff\xff\x0f"),
    _bytes("grpc-unknown-field", "a field that the protocol lacks", "INVALID_ARGUMENT", "Complete",
           b"\xfa\xff\xff\xff\x0f\x01a"),
    _bytes("grpc-method", "a method that does not exist", "UNIMPLEMENTED", "Nothing", b""),
    _wire("grpc-http1", "HTTP/1.1 at the gRPC port", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    _wire("grpc-pings", "10,000 pings in a row", _PREFACE, *[_PING * 1000] * 10),
    _wire("grpc-frame", "a frame of 16 MiB, as its head says", _PREFACE, struct.pack(">I", 0xFFFFFF00) + b"\x00" * 5),
]  # fmt: skip
