"""Calls to verifiers, and which verifiers have streams of this gateway."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
from outrider.gateway.request.models import Models, ServedModel
from outrider.gateway.routing import Ask, VerifierSelection
from outrider.gateway.routing.health import HealthWatches
from outrider.gateway.routing.job import Job
from outrider.gateway.routing.refused_jobs import RefusedJobs
from outrider.mesh.attempts import TRANSIENT
from outrider.mesh.errors import AlreadyExists, DeadlineExceeded, OutriderError, Unavailable, from_rpc
from outrider.mesh.registry import Member, Registry, State
from outrider.mesh.rpc import call, stub
from outrider.mesh.tasks import Tasks
from outrider.v1 import verifier_pb2 as pb
from outrider.v1.verifier_pb2_grpc import VerifierStub
from outrider.wire.frames import Frame, decode_frame
from outrider.wire.residency import Residency, may_hold

if TYPE_CHECKING:
    from outrider.gateway.settings import GatewaySettings


class Loads:
    """Counts this gateway's streams on verifiers, and keeps what announcements say beyond them.

    An announcement is up to a second old and counts this gateway's streams of then. What others have is therefore the
    announced number without the streams that this gateway had when it heard the announcement.
    """

    def __init__(self) -> None:
        self._own: Counter[str] = Counter()
        self._heard: dict[str, Member] = {}
        self._others: dict[str, int] = {}

    def enter(self, instance: str) -> None:
        """Counts a stream on a verifier."""
        self._own[instance] += 1

    def leave(self, instance: str) -> None:
        """Ends the count of a stream."""
        self._own[instance] -= 1
        if not self._own[instance]:
            del self._own[instance]

    def hear(self, members: Iterable[Member]) -> None:
        """Takes what verifiers announce, at once when one of them changes; forgets verifiers that are gone."""
        heard = {member.instance: member for member in members}
        for name, member in heard.items():
            if member != self._heard.get(name):
                self._others[name] = max(int(member.status.get("load", 0)) - self._own[name], 0)
        self._heard = heard
        self._others = {name: self._others[name] for name in heard}

    def of(self, member: Member) -> int:
        """Requests of a verifier, running and waiting."""
        return self._own[member.instance] + self._others.get(member.instance, 0)


_CALL_S = 5.0
_HEARTBEATS = 3
"""Heartbeats that a verifier is asked for within ``heartbeat_s``."""


class Verifiers:
    """Submits, follows, renews and cancels jobs, and counts this gateway's streams on each verifier.

    ``on_lost`` is called with the instance of a verifier that died with streams of this gateway. ``refused`` jobs are
    not submitted. ``isolation`` is held by the one request that may be killing verifiers and therefore runs without
    other such requests.
    """

    def __init__(
        self,
        registry: Registry,
        tasks: Tasks,
        settings: GatewaySettings,
        selection: VerifierSelection,
        refused: RefusedJobs,
        on_lost: Callable[[str], None],
    ) -> None:
        self._registry, self._tasks = registry, tasks
        self._lease_s, self._submit_s = settings.lease_s, settings.submit_s
        self._heartbeat_s = settings.heartbeat_s
        self._selection, self._watches = selection, HealthWatches(tasks, on_lost)
        self._loads = Loads()
        self.isolation, self.refused = asyncio.Lock(), refused
        self.models = Models(registry, settings.cold_models, settings.cold_place_s, settings.aliases)
        self._draining: set[str] = set()
        registry.on_change("verifier", self._on_members)

    def candidates(self, ask: Ask, served: ServedModel, avoid: Collection[str] = ()) -> list[Member]:
        """The verifiers of the ``served`` model, in the order of the selection; instances to ``avoid`` come last."""
        return self._selection.order(ask, self.models.verifiers(served), self._loads.of, avoid)

    async def submit(self, ask: Ask, message: pb.SubmitRequest, member: Member) -> OutriderError | None:
        """Submits a job to ``member``; returns the refusal, or None if ``member`` took the job.

        ``ask`` is the very object that `candidates` got. `AlreadyExists` means that ``member`` has the job already. In
        both cases the stream counts as one on ``member`` until `leave`. An unanswered call is an `Unavailable`.
        """
        refusal = await self._submit(message, member)
        if refusal is None or isinstance(refusal, AlreadyExists):
            self._watches.start(member)
            self._selection.sent(ask, member.instance)
        else:
            self.leave(member)
        return refusal

    async def follow(self, job: Job, member: Member, start: int) -> AsyncGenerator[Frame, None]:
        """Frames that ``member`` itself sends over gRPC, from token index ``start`` to the end of the answer.

        Raises `OutriderError` if ``member`` is lost, does not know the request, ends the call early, or sends no
        heartbeat for ``heartbeat_s`` seconds: its engine does not hold the request then.
        """
        sends_heartbeats = bool(member.status.get("heartbeats"))
        heartbeat_ms = max(round(self._heartbeat_s * 1e3 / _HEARTBEATS), 1)
        request = pb.FollowRequest(request_id=job.request_id, from_index=start, heartbeat_ms=heartbeat_ms)
        stream = _stub(member.address).Follow(request)
        try:
            while (response := await _next(stream, self._heartbeat_s if sends_heartbeats else None)) is not None:
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
        """Cancels ``job`` at ``members``, in the background; a ``reason`` ends the stream of all its readers."""
        for member in members:
            message = pb.CancelRequest(request_id=job.request_id, reason=reason)
            self._tasks.spawn(_quietly(_stub(member.address).Cancel, message), "cancel")

    def renew(self, requests: Iterable[tuple[str, Member]]) -> None:
        """Renews the leases of ``requests``, each given with its verifier, in the background."""
        messages: dict[str, pb.RenewRequest] = {}
        for request_id, member in requests:
            default = pb.RenewRequest(lease_ms=round(self._lease_s * 1e3))
            messages.setdefault(member.address, default).request_ids.append(request_id)
        for address, message in messages.items():
            self._tasks.spawn(_quietly(_stub(address).Renew, message), "renew")

    def confirm_records(self, requests: Iterable[tuple[str, str]]) -> None:
        """Tells verifiers that the ledger has the records of ``requests``, in the background.

        A request is its id and the instance of its verifier. The verifier keeps the record no longer than its frames.
        """
        messages: dict[str, pb.RenewRequest] = {}
        for request_id, instance in requests:
            if (member := self.find(instance)) is not None:
                messages.setdefault(member.address, pb.RenewRequest(lease_ms=1)).recorded.append(request_id)
        for address, message in messages.items():
            self._tasks.spawn(_quietly(_stub(address).Renew, message), "recorded")

    def _on_members(self, members: list[Member]) -> None:
        self._selection.breakers.keep(member.instance for member in members)
        self._loads.hear(members)
        for member in members:
            (self._draining.add if member.state == State.DRAINING else self._draining.discard)(member.instance)

    async def _submit(self, message: pb.SubmitRequest, member: Member) -> OutriderError | None:
        """The refusal of ``member``, or None; the stream counts as one on ``member`` before the answer is there."""
        breakers, instance = self._selection.breakers, member.instance
        self._loads.enter(instance)
        breakers.note_request(instance)
        try:
            await call(_stub(member.address).Submit, message, self._submit_s)
        except DeadlineExceeded:
            breakers.note_failure(instance)
            return Unavailable(f"a verifier did not answer within {self._submit_s:g} s", retry_after=1.0)
        except OutriderError as refusal:
            (breakers.note_failure if isinstance(refusal, TRANSIENT) else breakers.note_answer)(instance)
            return refusal
        except BaseException:
            breakers.note_cancellation(instance)
            self.leave(member)
            raise
        breakers.note_answer(instance)
        return None

    def enter(self, member: Member) -> None:
        """Counts a stream on ``member``, and watches ``member``."""
        self._loads.enter(member.instance)
        self._watches.start(member)

    def leave(self, member: Member) -> None:
        """Ends the count of a stream on ``member``."""
        self._loads.leave(member.instance)

    def present(self, member: Member) -> bool:
        """Whether the registry still knows ``member``."""
        return self.find(member.instance) is not None

    def draining(self, member: Member) -> bool:
        """Whether ``member`` was told to go; also once it is gone."""
        return member.instance in self._draining

    def find(self, instance: str, residency: Residency = None) -> Member | None:
        """The verifier with this instance name, if the registry knows it and it may hold data of a ``residency``."""
        members = (member for member in self._registry.members("verifier") if member.instance == instance)
        return next((member for member in members if may_hold(member.status, residency)), None)


async def _next(stream: Any, seconds: float | None) -> pb.FollowResponse | None:
    """The next response, or None after the last; `Unavailable` if none comes within ``seconds``."""
    try:
        async with asyncio.timeout(seconds):
            response = await stream.read()
    except TimeoutError:
        raise Unavailable("the verifier gives no sign of life") from None
    return None if response is grpc.aio.EOF else response


def _stub(address: str) -> VerifierStub:
    return stub(VerifierStub, address, "verifier", shared=True)


async def _quietly(method: Callable[..., Any], request: object) -> None:
    with suppress(OutriderError):  # a verifier that is gone has dropped its requests
        await call(method, request, _CALL_S)
