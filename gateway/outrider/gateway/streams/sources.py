"""The two sources of a job's frames: the broker, and the verifier itself over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from math import inf

from outrider.gateway import metrics
from outrider.gateway.routing.job import Job
from outrider.gateway.routing.verifiers import Verifiers
from outrider.gateway.streams.frame_reader import FrameReader
from outrider.gateway.streams.inbox import Arrival, Inbox, InboxItem, LogEnd, Source, VerifierLost
from outrider.gateway.streams.phases import TRANSITIONS, Event, Phase
from outrider.mesh.errors import Internal, OutriderError, Unavailable
from outrider.mesh.registry import Member
from outrider.mesh.telemetry import get_logger
from outrider.wire.frames import Frame

_log = get_logger("stream")


class FrameSources:
    """Collects the frames of ``job`` in one inbox, as they arrive: frames may repeat, overlap, be missing or early.

    Attributes:
        reading: the subject and the tag by which the verifier sends frames to this stream.
        phase: where frames come from.
        loss: why the verifier is lost; None in phases in which it is not.
    """

    def __init__(self, job: Job, verifiers: Verifiers, reader: FrameReader) -> None:
        self._job, self._verifiers, self._reader = job, verifiers, reader
        self._inbox = Inbox()
        self.reading = reader.reading(job.subject)
        self._follower: asyncio.Task[None] | None = None
        self.phase = Phase.UNPLACED
        self.loss: OutriderError | None = None

    @property
    def connected(self) -> bool:
        """Whether the broker is connected."""
        return self._reader.connected

    @property
    def following(self) -> bool:
        """Whether frames come from the verifier itself, too."""
        return self.phase is Phase.BOTH

    @property
    def idle(self) -> bool:
        """Whether the reader waits with an empty inbox, for frames from the broker alone."""
        return self.phase is Phase.BROKER and self._inbox.reader_waits

    def read(self, take_at_once: Callable[[Frame], bool]) -> None:
        """Reads frames from the broker from now on; those that ``take_at_once`` accepts skip the inbox."""

        def receive(frame: Frame) -> None:
            if take_at_once(frame):
                self._inbox.note_activity()
            else:
                self._inbox.put(Arrival(Source.BUS, frame))

        self.reading.begin(receive)

    def replay(self, log: Sequence[Frame]) -> None:
        """Puts the frames of a ``log`` before all others."""
        self._inbox.put_first([*(Arrival(Source.LOG, frame) for frame in log), LogEnd()])

    def place(self) -> None:
        """A verifier has the job."""
        self.loss = None
        self._change(Event.PLACED)

    def follow(self, member: Member, start: int, reason: str) -> None:
        """Reads frames from ``member`` itself, from token index ``start`` on, if it has the job and is not read yet."""
        if self._change(Event.FOLLOW):
            metrics.follows.labels(reason).inc()
            self._follower = asyncio.create_task(self._follow(member, start))

    def unfollow(self) -> None:
        """Reads frames from the broker alone: it has caught up."""
        self._change(Event.CAUGHT_UP)

    def lose(self, why: OutriderError) -> None:
        """The verifier is lost; of several losses the first one counts."""
        if self._change(Event.LOSS):
            self.loss = why

    def move(self) -> None:
        """Another verifier is looked for."""
        self._change(Event.MOVE)

    def end(self) -> None:
        """The answer has ended."""
        self._change(Event.END)

    async def next(self, silence_s: float, by: float = inf) -> InboxItem | None:
        """The oldest item; None after ``silence_s`` seconds without a frame, or at ``by`` on the monotonic clock."""
        while self._is_stale(item := await self._inbox.get(silence_s, by)):
            pass
        return item

    def next_ready(self) -> InboxItem | None:
        """The oldest item, or None if the inbox is empty."""
        while self._is_stale(item := self._inbox.get_nowait()):
            pass
        return item

    def close(self) -> None:
        """Ends both sources."""
        self.end()
        self._inbox.close()
        self.reading.close()

    def _is_stale(self, item: InboxItem | None) -> bool:
        """Whether ``item`` reports the loss of a verifier that is no longer followed."""
        return isinstance(item, VerifierLost) and item.follower is not self._follower

    def _change(self, event: Event) -> bool:
        """Whether ``event`` changes the phase; a follower ends with the phase that it belongs to."""
        phase = TRANSITIONS.get((self.phase, event), self.phase)
        if phase is self.phase:
            return False
        self.phase = phase
        if self._follower is not None:
            self._follower.cancel()
            self._follower = None
        return True

    async def _follow(self, member: Member, start: int) -> None:
        follower = asyncio.current_task()
        try:
            async with aclosing(self._verifiers.follow(self._job, member, start)) as frames:
                async for frame in frames:
                    self._inbox.put(Arrival(Source.VERIFIER, frame))
            self._inbox.put(VerifierLost(Unavailable("the verifier's own frames have ended"), follower))
        except OutriderError as error:
            self._inbox.put(VerifierLost(error, follower))
        except Exception:
            _log.exception("a verifier could not be followed", request=self._job.request_id, verifier=member.instance)
            self._inbox.put(VerifierLost(Internal(), follower))
