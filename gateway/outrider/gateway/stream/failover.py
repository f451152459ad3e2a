"""Which verifier generates an answer, and which verifier goes on when that one is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from math import inf

from outrider.gateway import metrics
from outrider.gateway.routing.job import Job
from outrider.gateway.routing.verifiers import Verifiers
from outrider.gateway.settings import GatewaySettings
from outrider.gateway.stream.answer import OnPlaced, ignore_placement
from outrider.gateway.stream.frame_reader import Reading
from outrider.gateway.stream.verifier_deaths import VerifierDeaths
from outrider.mesh.attempts import BUSY, TRANSIENT, persist
from outrider.mesh.errors import AlreadyExists, OutriderError, Overloaded, Unavailable, Unreachable
from outrider.mesh.registry import Member
from outrider.mesh.telemetry import get_logger

_log = get_logger("stream")
_PAUSE_S = 0.1
"""Pause between two searches for a verifier."""


class FailOver:
    """Submits ``job`` to a verifier, and to another one each time that the verifier is lost.

    Attributes:
        on_placed: Is called each time that a verifier has taken the job.
        member: The verifier that has the job or had it last; None before the first submission.
        troubled: Whether the job lost a verifier since its last token.
    """

    def __init__(self, job: Job, verifiers: Verifiers, reading: Reading, settings: GatewaySettings) -> None:
        self._job, self._verifiers, self._settings, self._reading = job, verifiers, settings, reading
        self.on_placed: OnPlaced = ignore_placement
        self._deaths: VerifierDeaths | None = None
        self._may_have_job: dict[str, Member] = {}
        self._counted: Member | None = None
        self._stalled_since: float | None = None
        self.member: Member | None = None
        self.troubled = False

    @property
    def verifier(self) -> str:
        """Instance of the verifier that has the job or had it last; empty before the first submission."""
        return self.member.instance if self.member else ""

    @property
    def present(self) -> bool:
        """Whether the registry still knows the verifier."""
        return self.member is not None and self._verifiers.present(self.member)

    @property
    def draining(self) -> bool:
        """Whether the verifier has announced that it goes: the end of its process is no death."""
        return self.member is not None and self._verifiers.draining(self.member)

    async def start(self, emitted: Sequence[int]) -> bool:
        """Submits a new job within ``place_s`` seconds; whether its verifier had the job already."""
        with metrics.unplaced.labels(self._job.served.name).track_inprogress():
            return await persist(lambda: self._submit(emitted), self._settings.place_s, TRANSIENT)

    def adopt(self, member: Member) -> None:
        """Takes ``member`` for the verifier of a job that was submitted before."""
        self._verifiers.enter(member)
        self.member = self._counted = member
        self._may_have_job = {member.instance: member}

    async def move(self, why: OutriderError, emitted: Sequence[int]) -> bool:
        """Submits the job to another verifier, which goes on after ``emitted``; whether that one had the job already.

        Raises `Unavailable` if no verifier takes the job within ``resume_s`` seconds of the last token or loss,
        `DeadlinePassed` if the job's deadline passes first, and `FatalRequest` if too many verifiers died.
        """
        if isinstance(why, Unreachable) and not self.draining:
            self._note_loss(self.verifier)
        now, again, self.troubled = time.monotonic(), self._stalled_since is not None, True
        self._stalled_since = self._stalled_since if again else now
        request, verifier = self._job.request_id, self.verifier
        log = _log.info if self.draining else _log.warning
        log("a stream lost its verifier", request=request, verifier=verifier, why=why.message)
        left_s = self._left_s(now, bool(emitted))
        await asyncio.sleep(_PAUSE_S if again else 0)
        await self._judge(left_s)
        try:
            had_job = await persist(lambda: self._submit(emitted), left_s, BUSY)
        except BUSY:
            self._left_s(time.monotonic(), bool(emitted))  # a deadline that has passed is the reason
            raise
        metrics.resumptions.inc()
        return had_job

    def note_progress(self, *, generated: bool) -> None:
        """Notes that a frame brought the answer forward: ``resume_s`` begins anew.

        Earlier deaths no longer count if the frame holds ``generated`` tokens, and not only the echoed prompt.
        """
        self._stalled_since = None
        if generated:
            self.troubled = False
            if self._deaths is not None:
                self._deaths.clear()

    def cancel(self) -> None:
        """Cancels the job at every verifier that may have it."""
        self._verifiers.cancel(self._job, self._may_have_job.values())

    def drop_verifier(self) -> None:
        """Cancels the job at the present verifier alone."""
        if self.member is not None:
            self._verifiers.cancel(self._job, [self.member])

    def close(self) -> None:
        """Ends the count of the stream on its verifier, and the isolation of the request."""
        self._leave()
        if self._deaths is not None:
            self._deaths.leave_isolation()
        self.on_placed = ignore_placement

    def _left_s(self, now: float, begun: bool) -> float:
        """Seconds left to find a verifier."""
        late_s = self._job.deadlines.expires_at(begun) - now
        stalled_s = now - (now if self._stalled_since is None else self._stalled_since)
        left_s = min(self._settings.resume_s - stalled_s, late_s)
        if left_s > 0:
            return left_s
        if late_s <= 0:
            raise self._job.deadlines.passed(begun)
        raise Unavailable("the stream could not be resumed", retry_after=1.0)

    async def _submit(self, emitted: Sequence[int]) -> bool:
        """Offers the job to one verifier after the other until one takes it; whether that one had the job already.

        Raises `Overloaded` if the queues of all that answer are full, `Unavailable` if none answers, and else what a
        verifier finds wrong with the request.
        """
        if (refused := self._verifiers.refused).some:
            refused.check(self._job, begun=bool(emitted))
        ask, message = self._job.ask, self._job.submission(emitted, self._settings.lease_s)
        message.reader, message.tag = self._reading.subject, self._reading.tag
        failure: OutriderError | None = None
        for member in self._verifiers.candidates(ask, self._job.served, {self.verifier}):
            self._may_have_job[member.instance] = member
            refusal = await self._verifiers.submit(ask, message, member)
            if refusal is None or isinstance(refusal, AlreadyExists):
                self._settle_on(member)
                return refusal is not None
            await self._check_refusal(refusal, member)
            failure = _preferred(failure, refusal)
        raise failure or Unavailable(f"no verifier is ready for the model {self._job.served.name!r}", retry_after=1.0)

    async def _check_refusal(self, refusal: OutriderError, member: Member) -> None:
        """Notes a loss that ``refusal`` shows; raises a refusal that every other verifier would repeat."""
        if isinstance(refusal, Unreachable) and refusal.broke:
            self._note_loss(member.instance)
            await self._judge(self._settings.resume_s)
        if not isinstance(refusal, BUSY):
            raise refusal

    def _note_loss(self, instance: str) -> None:
        self.troubled = True
        if self._deaths is None:
            self._deaths = VerifierDeaths(self._job, self._verifiers, self._reading.end, self._settings.most_deaths)
        if self._deaths.add(instance):
            self._stalled_since = None

    async def _judge(self, seconds: float) -> None:
        if self._deaths is not None:
            await self._deaths.judge(seconds)

    def _settle_on(self, member: Member) -> None:
        """Makes ``member`` the verifier of the job, and cancels the job at all others that may have it."""
        self._leave()
        self.member = self._counted = member
        others = [other for name, other in self._may_have_job.items() if name != member.instance]
        self._verifiers.cancel(self._job, others)
        self._may_have_job = {member.instance: member}
        self.on_placed()

    def _leave(self) -> None:
        if self._counted is not None:
            self._verifiers.leave(self._counted)
            self._counted = None


def _preferred(failure: OutriderError | None, refusal: OutriderError) -> OutriderError:
    """The refusal to report: a full queue before no answer, and of full queues the one with the earliest retry."""
    if failure is None or not isinstance(failure, Overloaded):
        return refusal
    if not isinstance(refusal, Overloaded):
        return failure
    return min(failure, refusal, key=lambda error: inf if error.retry_after is None else error.retry_after)
