"""Calls to verifiers on behalf of one request."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from math import inf
from typing import Any

import grpc
import msgspec
from outrider.gateway.attempts import BUSY, TRANSIENT
from outrider.gateway.condemned import Condemned
from outrider.gateway.deadlines import Deadlines
from outrider.gateway.models import Models, Served
from outrider.gateway.routing import Ask, Routes
from outrider.gateway.tenants.caller import Caller
from outrider.gateway.watch import Watch
from outrider.mesh.errors import (
    AlreadyExists,
    DeadlineExceeded,
    OutriderError,
    Overloaded,
    Unavailable,
    Unreachable,
    from_rpc,
)
from outrider.mesh.registry import Member, Registry
from outrider.mesh.rpc import call, stub
from outrider.mesh.tasks import Tasks
from outrider.v1 import verifier_pb2 as pb
from outrider.v1.sampling_pb2 import SamplingParams, Speculation
from outrider.v1.verifier_pb2_grpc import VerifierStub
from outrider.wire.frames import Frame, decode_frame, token_subject
from outrider.wire.ids import pack_ids

_CALL_S = 5.0
_HEARTBEAT_S = 15.0
_HEARTBEATS = 3
"""So many heartbeats are asked for in the time without one after which a verifier counts as lost."""


class Job(msgspec.Struct, frozen=True):
    """A tokenized request, as any verifier of its model can take it.

    The verifier keeps the ``record`` of the stream of which it is a choice, where ``stream_id`` names one.
    """

    request_id: str
    served: Served
    prompt: list[int]
    sampling: SamplingParams
    speculation: Speculation
    caller: Caller
    priority: int = 0
    session: str = ""
    deadlines: Deadlines = Deadlines()
    coalesce: bool = False
    stream_id: str = ""
    record: bytes = b""

    @property
    def shareable(self) -> bool:
        """Whether another request's answer will do, and this one's for others: the same, and with all time it needs."""
        return self.coalesce and not self.deadlines.any

    @property
    def ask(self) -> Ask:
        """What routers are told of it."""
        return Ask(self.caller.tenant, self.prompt, self.sampling.max_tokens, self.session)

    @property
    def subject(self) -> str:
        """Where its frames are published."""
        return token_subject(self.caller.tenant, self.request_id)

    def submission(self, emitted: Sequence[int], lease_s: float) -> pb.SubmitRequest:
        """The request for a verifier that goes on after ``emitted``; nobody's for ``lease_s`` seconds, it ends."""
        ttft_ms, timeout_ms = self.deadlines.left_ms(bool(emitted))
        return pb.SubmitRequest(
            request_id=self.request_id,
            tenant=self.caller.tenant,
            prompt=pack_ids(self.prompt),
            emitted=pack_ids(emitted),
            sampling=self.sampling,
            speculation=self.speculation,
            priority=self.priority,
            weight=self.caller.weight,
            lease_ms=round(lease_s * 1e3),
            ttft_ms=ttft_ms,
            timeout_ms=timeout_ms,
            stream_id=self.stream_id,
            record=self.record,
        )


class Verifiers:
    """Submits, follows and cancels, and knows how many streams of ours each verifier has.

    ``on_lost`` hears the instance of a verifier of ours that died. A request ends when nobody has renewed it for
    ``lease_s`` seconds, and a verifier has ``submit_s`` seconds to take one. A verifier that is followed is lost when
    its engine gives no sign for ``heartbeat_s`` seconds. The ``ward`` is for requests that verifiers may be dying of.
    Requests for ``condemned`` grammars are not begun.
    """

    def __init__(
        self,
        registry: Registry,
        tasks: Tasks,
        on_lost: Callable[[str], None],
        routes: Routes,
        condemned: Condemned,
        *,
        lease_s: float,
        submit_s: float = _CALL_S,
        heartbeat_s: float = _HEARTBEAT_S,
    ) -> None:
        self._registry, self._routes = registry, routes
        self._tasks, self._lease_s, self._submit_s = tasks, lease_s, submit_s
        self._heartbeat_s = heartbeat_s
        self._watch = Watch(tasks, on_lost)
        self._in_flight: Counter[str] = Counter()
        self.ward, self.condemned = asyncio.Lock(), condemned
        self.models = Models(registry, self._in_flight.__getitem__)
        registry.on_change("verifier", lambda found: routes.breakers.keep(member.instance for member in found))

    async def submit(
        self,
        job: Job,
        emitted: Sequence[int] = (),
        avoid: Collection[str] = (),
        tried: Callable[[Member], None] = lambda member: None,
        died: Callable[[Member], Awaitable[None]] | None = None,
        known: Callable[[Member], None] = lambda member: None,
    ) -> Member:
        """The verifier that took ``job``: the first that would, in the order of the routes, those to ``avoid`` last.

        ``tried`` hears of each that may have it, ``died`` of each that was lost as it took it, and is waited for;
        ``known`` hears of the one returned where that one says that it has the request already, which only following
        it proves. `leave` the one returned in the end. `Overloaded` when all that
        answer are full, `Unavailable` when none answers, else what a verifier has against the request itself.
        """
        if not emitted:
            self.condemned.check(job.sampling)
        message, ask = job.submission(emitted, self._lease_s), job.ask
        failure: OutriderError | None = None
        for member in self._routes.order(ask, self.models.verifiers(job.served), self.models.load, avoid):
            tried(member)
            refusal = await self._offer(message, member)
            if refusal is None or isinstance(refusal, AlreadyExists):
                if refusal is not None:
                    known(member)
                self._watch.keep(member)
                self._routes.sent(ask, member.instance)
                return member
            self.leave(member)
            if died is not None and isinstance(refusal, Unreachable) and refusal.broke:
                await died(member)
            if not isinstance(refusal, BUSY):
                raise refusal
            failure = _milder(failure, refusal)
        raise failure or Unavailable(f"no verifier is ready for the model {job.served.name!r}", retry_after=1.0)

    async def follow(self, job: Job, member: Member, start: int) -> AsyncGenerator[Frame, None]:
        """Frames straight from the verifier, from token ``start`` on to the last.

        `OutriderError` when the verifier is lost, has never heard of the request, ends early, or gives no sign that its
        engine holds the request.
        """
        told = bool(member.status.get("heartbeats"))
        heartbeat_ms = max(round(self._heartbeat_s * 1e3 / _HEARTBEATS), 1)
        asked = pb.FollowRequest(request_id=job.request_id, from_index=start, heartbeat_ms=heartbeat_ms)
        stream = _stub(member.address).Follow(asked)
        try:
            while (response := await _next(stream, self._heartbeat_s if told else None)) is not None:
                if response.held:
                    continue
                frame = decode_frame(response.frame)
                yield frame
                if frame.finish is not None:
                    return
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from None
        finally:
            stream.cancel()
        raise Unavailable("the verifier ended the stream early")

    def cancel(self, job: Job, members: Collection[Member], reason: str = "") -> None:
        """Has ``members`` drop ``job``, in the background; with a ``reason`` its other readers are told so too."""
        for member in members:
            message = pb.CancelRequest(request_id=job.request_id, reason=reason)
            self._tasks.spawn(_quietly(_stub(member.address).Cancel, message), "cancel")

    def renew(self, requests: Iterable[tuple[str, Member]]) -> None:
        """Tells members, in the background, that their ``requests`` are still wanted."""
        asked: dict[str, pb.RenewRequest] = {}
        for request_id, member in requests:
            default = pb.RenewRequest(lease_ms=round(self._lease_s * 1e3))
            asked.setdefault(member.address, default).request_ids.append(request_id)
        for address, message in asked.items():
            self._tasks.spawn(_quietly(_stub(address).Renew, message), "renew")

    def recorded(self, requests: Iterable[tuple[str, str]]) -> None:
        """Tells verifiers in the background that the broker has the records of ``requests``, each with its verifier."""
        asked: dict[str, pb.RenewRequest] = {}
        for request_id, instance in requests:
            if (member := self.find(instance)) is not None:
                asked.setdefault(member.address, pb.RenewRequest(lease_ms=1)).recorded.append(request_id)
        for address, message in asked.items():
            self._tasks.spawn(_quietly(_stub(address).Renew, message), "recorded")

    async def _offer(self, message: pb.SubmitRequest, member: Member) -> OutriderError | None:
        """What ``member`` has against the request; it counts as ours from before the answer."""
        breakers, instance = self._routes.breakers, member.instance
        self._in_flight[instance] += 1
        breakers.asked(instance)
        try:
            await call(_stub(member.address).Submit, message, self._submit_s)
        except DeadlineExceeded:
            breakers.failed(instance)
            return Unavailable(f"a verifier did not answer within {self._submit_s:g} s", retry_after=1.0)
        except OutriderError as refusal:
            (breakers.failed if isinstance(refusal, TRANSIENT) else breakers.answered)(instance)
            return refusal
        except BaseException:
            breakers.given_up(instance)
            self.leave(member)
            raise
        breakers.answered(instance)
        return None

    def enter(self, member: Member) -> None:
        """Notes that a stream of ours is on ``member``, and watches it."""
        self._in_flight[member.instance] += 1
        self._watch.keep(member)

    def leave(self, member: Member) -> None:
        """Notes that a stream of ours is no longer on ``member``."""
        self._in_flight[member.instance] -= 1
        if not self._in_flight[member.instance]:
            del self._in_flight[member.instance]

    def present(self, member: Member) -> bool:
        """Whether the registry still knows ``member``."""
        return self.find(member.instance) is not None

    def find(self, instance: str) -> Member | None:
        """The verifier of that name, where the registry knows it."""
        return next((member for member in self._registry.members("verifier") if member.instance == instance), None)


async def _next(stream: Any, seconds: float | None) -> pb.FollowResponse | None:
    """The next response, None behind the last; `Unavailable` where none comes for so long."""
    try:
        async with asyncio.timeout(seconds):
            response = await stream.read()
    except TimeoutError:
        raise Unavailable("the verifier gives no sign of life") from None
    return None if response is grpc.aio.EOF else response


def _milder(failure: OutriderError | None, refusal: OutriderError) -> OutriderError:
    """Of two that would not, what to tell: a full queue before no answer, and the one to come back to the soonest."""
    if failure is None or not isinstance(failure, Overloaded):
        return refusal
    if not isinstance(refusal, Overloaded):
        return failure
    return min(failure, refusal, key=lambda error: inf if error.retry_after is None else error.retry_after)


def _stub(address: str) -> VerifierStub:
    return stub(VerifierStub, address)


async def _quietly(method: Callable[..., Any], request: object) -> None:
    with suppress(OutriderError):  # a verifier that is gone has nothing left to be told about
        await call(method, request, _CALL_S)
