"""The answer to one job, complete and in order, whatever happens to the broker and to verifiers."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from math import inf

import msgspec
from outrider.gateway import metrics
from outrider.gateway.admission.deadlines import NO_DEADLINES
from outrider.gateway.routing.job import Job
from outrider.gateway.routing.verifiers import Verifiers
from outrider.gateway.settings import GatewaySettings
from outrider.gateway.stream.answer import OnPlaced
from outrider.gateway.stream.failover import FailOver
from outrider.gateway.stream.frame_reader import FrameReader
from outrider.gateway.stream.phases import Phase
from outrider.gateway.stream.reassembly import Reassembly
from outrider.gateway.stream.replay import failure_of
from outrider.gateway.stream.sources import Arrival, FrameSources, InboxItem, Source, VerifierLost
from outrider.mesh.errors import OutriderError, Unavailable
from outrider.mesh.registry import Member
from outrider.mesh.telemetry import get_logger
from outrider.wire.frames import Finish, Frame

_log = get_logger("stream")

_FAILURES = (Finish.ERROR, Finish.REFUSED)
ReadLog = Callable[[Job], Awaitable[Sequence[Frame]]]


class LogSummary(msgspec.Struct, frozen=True):
    """The extent of an answer's log: its number of ``tokens``, and whether it is ``open_ended``.

    A log is open-ended if no frame in it ends the answer.
    """

    tokens: int
    open_ended: bool


class TokenStream:
    """An `AnswerStream` that is generated for its job alone.

    Frames come from the broker. If the broker is away, loses a frame or falls silent, the stream reads from the
    verifier itself as well until the broker has caught up. If the verifier is lost, another one goes on after the
    tokens so far. All sources bring the same tokens: the target alone decides them, and an index identifies each.
    """

    def __init__(self, job: Job, verifiers: Verifiers, reader: FrameReader, settings: GatewaySettings) -> None:
        self.job, self._settings = job, settings
        self._sources = FrameSources(job, verifiers, reader)
        self._order = Reassembly(len(job.prompt) if job.sampling.echo else 0)
        self._failover = FailOver(job, verifiers, self._sources.reading, settings)
        self.failed: OutriderError | None = None
        self.finished = self.expired_unstarted = False
        self.spent = 0

    @property
    def on_placed(self) -> OnPlaced:
        """As `AnswerStream.on_placed`."""
        return self._failover.on_placed

    @on_placed.setter
    def on_placed(self, on_placed: OnPlaced) -> None:
        self._failover.on_placed = on_placed

    @property
    def member(self) -> Member | None:
        """The verifier that has the job or had it last."""
        return self._failover.member

    @property
    def verifier(self) -> str:
        """As `AnswerStream.verifier`."""
        return self._failover.verifier

    @property
    def holder(self) -> str:
        """As `AnswerStream.holder`."""
        return self._failover.verifier

    @property
    def placed(self) -> bool:
        """Whether a verifier has taken the job."""
        return self.member is not None

    @property
    def lease(self) -> tuple[str, Member] | None:
        """As `AnswerStream.lease`."""
        return None if self.member is None or self.finished else (self.job.request_id, self.member)

    @property
    def following(self) -> bool:
        """Whether frames come from the verifier itself, too."""
        return self._sources.phase is Phase.BOTH

    async def open(self) -> None:
        """As `AnswerStream.open`."""
        self._sources.read()
        self._place(await self._failover.start(self._order.generated))

    async def attach(self, read_log: ReadLog, member: Member | None) -> LogSummary:
        """Resumes a job that was submitted before, in place of `open`: reads its log first, then from ``member``.

        If ``member`` is None or the log has a gap, another verifier goes on.
        """
        self._sources.read()
        log = await read_log(self.job)
        if member is not None:
            self._failover.adopt(member)
            self._sources.place()
        self._sources.replay(log)
        end = max([0, *(frame.first_index + len(frame.tokens) for frame in log)])
        return LogSummary(end, all(frame.finish in (None, Finish.CANCELLED) for frame in log))

    async def frames(self) -> AsyncGenerator[list[Frame], None]:
        """As `AnswerStream.frames`."""
        while not self.finished:
            if self._sources.loss is not None:
                await self._move(self._sources.loss)
            item = await self._sources.next(self._settings.silence_s, self._expires_at)
            if item is None:
                self._on_silence()
            if ready := self._take_all(item):
                yield ready
            if self.failed is not None:
                raise self.failed

    async def close(self, *, cancel: bool = True) -> None:
        """As `AnswerStream.close`."""
        if cancel and not self.finished:
            self._failover.cancel()
        self._failover.close()
        self._sources.close()

    def follow(self, reason: str) -> None:
        """As `AnswerStream.follow`."""
        if self.member is not None:
            self._sources.follow(self.member, self._order.next_index, reason)

    async def _move(self, why: OutriderError) -> None:
        """Moves the job to another verifier, which goes on with the answer."""
        self._sources.move()
        try:
            had_job = await self._failover.move(why, self._order.generated)
        except OutriderError as error:
            self._fail(error)
            raise
        self._place(had_job)

    def _place(self, had_job: bool) -> None:
        """Follows the verifier if the broker is away, or if the verifier says that it ``had_job`` before.

        Such a verifier may have published its frames already, or its engine may have lost the job. A verifier of an
        earlier version sends gateways no batches of frames.
        """
        self._sources.place()
        if not self._sources.connected:
            self.follow("disconnected")
        elif had_job:
            self.follow("known")
        elif self.member is not None and not self.member.status.get("batches"):
            self.follow("unbatched")

    def _take_all(self, item: InboxItem | None) -> list[Frame]:
        ready: list[Frame] = []
        before = self.spent
        while item is not None and not self.finished and self.failed is None:
            if isinstance(item, Arrival):
                if (fresh := self._take(item.source, item.frame)) is not None:
                    ready.append(fresh)
            elif isinstance(item, VerifierLost):
                self._sources.lose(item.error)
            else:
                self._on_replayed()
            item = self._sources.next_ready()
        if self.spent > before:
            metrics.tokens.inc(self.spent - before)
        return ready

    def _take(self, source: Source, frame: Frame) -> Frame | None:
        """The part of ``frame`` that is next in order."""
        if frame.finish is Finish.CANCELLED:
            self._on_cancelled(source, frame)
            return None
        if not self._order.fits(frame):
            self._on_gap(source)
            return None
        if self.following and source is Source.BUS and self._order.reaches(frame) and self._sources.connected:
            self._sources.unfollow()
        if frame.finish is not None:
            self._on_finish(frame)
        return None if self.failed else self._accept(frame)

    def _fail(self, error: OutriderError | None) -> None:
        """Ends the stream with ``error``, if there is one."""
        if error is not None:
            self.failed = error
            self._sources.end()

    def _accept(self, frame: Frame) -> Frame | None:
        if (fresh := self._order.take(frame)) is None:
            return None
        self.spent = max(0, self._order.next_index)
        if self._failover.troubled:
            self._failover.note_progress(generated=self.spent > 0)
        if fresh.finish is None:
            return fresh
        self.finished = True
        self._sources.end()
        return self._order.complete(fresh)

    def _on_finish(self, frame: Frame) -> None:
        if frame.finish is Finish.FILTERED:
            self._failover.cancel()
        if frame.finish is Finish.ERROR:
            _log.error("the verifier failed a request", request=self.job.request_id, why=frame.error)
        if frame.finish in _FAILURES:
            self._fail(failure_of(frame))
        if frame.finish is Finish.TIMEOUT:
            self.expired_unstarted = frame.usage is None
            self._fail(self.job.deadlines.passed(bool(self.spent)))

    def _on_replayed(self) -> None:
        if self.member is None:
            self._sources.lose(Unavailable("no verifier has the request"))
        self.follow("resumed")

    def _on_gap(self, source: Source) -> None:
        """Follows the verifier; one that lacks frames itself took the job over from another and is given up."""
        if source is Source.VERIFIER and self.following:
            self._failover.drop_verifier()
            self._sources.lose(Unavailable("the verifier lacks earlier tokens"))
        self.follow("gap")

    def _on_cancelled(self, source: Source, frame: Frame) -> None:
        """Ends the stream if ``frame`` gives a reason: somebody cancelled it for all readers.

        A verifier that drains, or that the stream has left, cancels without a reason. The stream moves at once if its
        own verifier drains, or if it follows the verifier.
        """
        self._fail(failure_of(frame))
        drained = source is Source.BUS and frame.verifier == self.verifier and self._failover.draining
        if self.failed is None and (drained or source is Source.VERIFIER):
            self._sources.lose(Unavailable("the verifier gave the request up"))

    def _on_silence(self) -> None:
        if time.monotonic() >= self._expires_at:
            self._fail(self.job.deadlines.passed(bool(self.spent)))
        elif not self.following:
            self.follow("silence")
        elif self.placed and self._sources.connected and not self._failover.present:
            self._sources.lose(Unavailable("the verifier is gone"))

    @property
    def _expires_at(self) -> float:
        """When the gateway itself ends the request, in seconds of the monotonic clock."""
        deadlines = self.job.deadlines
        return inf if deadlines is NO_DEADLINES else deadlines.expires_at(bool(self.spent))
