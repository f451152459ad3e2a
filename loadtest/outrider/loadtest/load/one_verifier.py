"""Requests to one verifier past the gateway, for measurements that fix which verifier answers."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

import msgspec
from outrider.mesh.registry import Member
from outrider.mesh.rpc import channel
from outrider.v1 import sampling_pb2
from outrider.v1 import verifier_pb2 as pb
from outrider.v1.verifier_pb2_grpc import VerifierStub
from outrider.wire.frames import decode_frame
from outrider.wire.ids import pack_ids


class Reply(msgspec.Struct, frozen=True):
    """An answer: seconds to its first token, its tokens, and prompt tokens whose pages were cached."""

    ttft_s: float
    tokens: list[int]
    cached: int


async def ask(verifier: Member, prompt: Sequence[int], max_tokens: int = 1, temperature: float = 0.0) -> Reply:
    """The answer of ``verifier``, always with the same seed; `grpc.aio.AioRpcError` if the call fails."""
    stub, name = VerifierStub(channel(verifier.address)), f"loadtest-{secrets.token_hex(8)}"
    sampling = sampling_pb2.SamplingParams(temperature=temperature, seed=1, max_tokens=max_tokens, ignore_eos=True)
    began, first = time.perf_counter(), 0.0
    await stub.Submit(pb.SubmitRequest(request_id=name, tenant="loadtest", prompt=pack_ids(prompt), sampling=sampling))
    tokens, cached = list[int](), 0
    async for response in stub.Follow(pb.FollowRequest(request_id=name)):
        frame = decode_frame(response.frame)
        tokens += frame.tokens
        first = first or time.perf_counter() - began
        cached = frame.usage.cached_tokens if frame.usage is not None else cached
    return Reply(first, tokens, cached)
