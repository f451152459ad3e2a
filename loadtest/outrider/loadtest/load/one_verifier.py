"""Requests to one verifier past the gateway, for measurements that fix which verifier answers."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
from outrider.mesh.registry import Member
from outrider.mesh.rpc import channel
from outrider.v1 import sampling_pb2
from outrider.v1 import verifier_pb2 as pb
from outrider.v1.verifier_pb2_grpc import VerifierStub
from outrider.wire.frames import decode_frame
from outrider.wire.ids import pack_ids

_IDS = (10, 1000)
"""Token ids of prompts by chance: a range that every vocabulary has."""


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


class Customers:
    """Clients of a tenant, each of which sends requests to one verifier without a pause.

    A prompt has ``prompt`` tokens by chance and an answer ``answer`` tokens.

    Attributes:
        service: 1 for each prompt token and 2 for each token of an answer, as verifiers charge them.
    """

    def __init__(self, name: str, weight: float, prompt: int, answer: int) -> None:
        self.name, self.weight = name, weight
        self._prompt, self._answer = prompt, answer
        self._random = random.Random(name)
        self.service = 0

    async def run(self, verifier: Member) -> None:
        """Sends requests without end; `grpc.aio.AioRpcError` if a call fails."""
        stub = VerifierStub(channel(verifier.address))
        while True:
            request = self._request()
            try:
                await stub.Submit(request)
                prompt = await self._charge(stub, request.request_id)
                self.service += prompt
            except asyncio.CancelledError:
                await stub.Cancel(pb.CancelRequest(request_id=request.request_id))
                raise

    async def _charge(self, stub: VerifierStub, request_id: str) -> int:
        """Follows the answer and counts its tokens as they come; returns what the prompt costs."""
        cached = 0
        async for response in stub.Follow(pb.FollowRequest(request_id=request_id)):
            frame = decode_frame(response.frame)
            self.service += 2 * len(frame.tokens)
            cached = frame.usage.cached_tokens if frame.usage is not None else cached
        return self._prompt - cached

    def _request(self) -> pb.SubmitRequest:
        name = f"loadtest-{secrets.token_hex(8)}"
        prompt = pack_ids([self._random.randint(*_IDS) for _ in range(self._prompt)])
        sampling = sampling_pb2.SamplingParams(temperature=1.0, seed=1, max_tokens=self._answer, ignore_eos=True)
        return pb.SubmitRequest(request_id=name, tenant=self.name, prompt=prompt, sampling=sampling, weight=self.weight)


@asynccontextmanager
async def served(customers: Customers, clients: Sequence[int], verifiers: Sequence[Member]) -> AsyncIterator[None]:
    """``customers`` send requests by ``clients`` at each of the ``verifiers`` until the block ends."""
    tasks = [
        asyncio.create_task(customers.run(verifier))
        for verifier, count in zip(verifiers, clients, strict=True)
        for _ in range(count)
    ]
    try:
        yield
        if failed := next((task for task in tasks if task.done()), None):
            failed.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
