"""Records and frames that verifiers keep of their streams, for streams that the ledger lacks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import grpc
from outrider.gateway.ledger.record import Key, Record, choice_id
from outrider.gateway.routing.job import Job
from outrider.mesh.attempts import TRANSIENT
from outrider.mesh.errors import OutriderError, Unavailable
from outrider.mesh.registry import Registry
from outrider.mesh.rpc import call, stub
from outrider.v1 import verifier_pb2 as pb
from outrider.v1.verifier_pb2_grpc import VerifierStub
from outrider.wire.frames import Frame, decode_frame

_ASK_S, _AGAIN_S = 2.0, 0.1

T = TypeVar("T")


class VerifierRecords:
    """Asks all verifiers at once; each has two seconds to answer."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def find(self, key: Key) -> tuple[Record, list[str]] | None:
        """The record of a stream and the instance of each choice's verifier, or ""; None if no verifier has the stream.

        Waits for verifiers that had no time to announce themselves yet. Raises `Unavailable` if no verifier that
        answers has the stream and one that may have it does not answer: it is frozen, busy, or died just now.
        """
        while True:
            due = self._registry.news_due_s
            stored = await self._find(key)
            if stored is not None or not due:
                return stored
            await asyncio.sleep(min(due, _AGAIN_S))

    async def _find(self, key: Key) -> tuple[Record, list[str]] | None:
        """As `find`, for the verifiers that the registry knows now."""
        late: list[VerifierStub] = []
        answers = await self._all(lambda verifier: _recall(verifier, key, late))
        recalled = [(request, instance) for instance, requests in answers for request in requests]
        if not recalled and late:
            raise Unavailable("the stream may be one of a verifier that does not answer at the moment", retry_after=1.0)
        if not recalled:
            return None
        first = recalled[0][0]
        sampling, speculation = first.sampling.SerializeToString(), first.speculation.SerializeToString()
        record = Record.from_verifier(first.record, first.prompt, sampling, speculation)
        holders = {request.request_id: name for request, name in sorted(recalled, key=lambda each: each[0].running)}
        return record, [holders.get(choice_id(key.request, choice), "") for choice in range(record.choices)]

    async def frames(self, job: Job) -> list[Frame]:
        """The frames that verifiers have of a job so far, in order; raises `Unavailable` if there are none."""
        answers = await self._all(lambda verifier: _frames(verifier, job))
        all_frames = [frame for _, frames in answers for frame in frames]
        if not all_frames:
            raise Unavailable("no verifier has the tokens of this stream", retry_after=1.0)
        return sorted(all_frames, key=lambda frame: (frame.first_index, frame.finish is not None))

    async def forget(self, jobs: Sequence[Job], reason: str) -> None:
        """Makes all verifiers forget ``jobs``; jobs that run are cancelled for the ``reason``."""
        messages = [pb.CancelRequest(request_id=job.request_id, reason=reason, forget=True) for job in jobs]
        await self._all(lambda verifier: asyncio.gather(*(call(verifier.Cancel, each, _ASK_S) for each in messages)))

    async def _all(self, ask: Callable[[VerifierStub], Awaitable[T]]) -> list[tuple[str, T]]:
        """The answers of all verifiers that answer, each with its instance."""
        members = self._registry.members("verifier")
        calls = (_quietly(ask(stub(VerifierStub, member.address, "verifier"))) for member in members)
        answers = zip(members, await asyncio.gather(*calls), strict=True)
        return [(member.instance, answer) for member, answer in answers if answer is not None]


async def _quietly(answer: Awaitable[T]) -> T | None:
    try:
        return await answer
    except (OutriderError, grpc.aio.AioRpcError):
        return None


async def _recall(verifier: VerifierStub, key: Key, late: list[VerifierStub]) -> Sequence[pb.RecalledRequest]:
    """The requests of a stream that a verifier has; a verifier that does not answer is added to ``late``."""
    message = pb.RecallRequest(tenant=key.tenant, stream_id=key.request)
    try:
        answer: pb.RecallResponse = await call(verifier.Recall, message, _ASK_S)
    except TRANSIENT:
        late.append(verifier)
        raise
    return list(answer.requests)


async def _frames(verifier: VerifierStub, job: Job) -> list[Frame]:
    first = -len(job.prompt) if job.sampling.echo else 0
    message = pb.FollowRequest(request_id=job.request_id, from_index=first, so_far=True)
    return [decode_frame(each.frame) async for each in verifier.Follow(message, timeout=_ASK_S)]
