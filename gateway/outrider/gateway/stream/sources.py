"""The two sources of a job's frames, the broker and the verifier itself over gRPC, and the queue where both arrive."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import aclosing
from enum import Enum
from math import inf

import msgspec
from outrider.gateway import metrics
from outrider.gateway.routing.job import Job
from outrider.gateway.routing.verifiers import Verifiers
from outrider.gateway.stream.frame_reader import FrameReader
from outrider.gateway.stream.phases import TRANSITIONS, Event, Phase
from outrider.mesh.errors import Internal, OutriderError, Unavailable
from outrider.mesh.registry import Member
from outrider.mesh.telemetry import get_logger
from outrider.wire.frames import Frame

_log = get_logger("stream")


class Source(Enum):
    """The source of a frame: the log, the broker, or the verifier itself."""

    LOG = "log"
    BUS = "bus"
    VERIFIER = "verifier"


class Arrival(msgspec.Struct, frozen=True):
    """A frame and its source."""

    source: Source
    frame: Frame


class VerifierLost(msgspec.Struct, frozen=True):
    """The verifier that ``follower`` read from is lost."""

    error: OutriderError
    follower: object


class LogEnd(msgspec.Struct, frozen=True):
    """All frames of the log have been read."""


InboxItem = Arrival | VerifierLost | LogEnd


class Inbox:
    """A queue with one reader, which waits for a limited time.

    One timer serves all waits: a timer for each token would cost as much as all other work on the token.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._loop, self._clock = asyncio.get_running_loop(), clock or time.monotonic
        self._items: deque[InboxItem] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0

    def put(self, item: InboxItem) -> None:
        """Appends ``item``."""
        self._items.append(item)
        self._wake()

    def put_first(self, items: Sequence[InboxItem]) -> None:
        """Puts ``items`` before those in the queue."""
        self._items.extendleft(reversed(items))
        self._wake()

    def get_nowait(self) -> InboxItem | None:
        """The oldest item, or None."""
        return self._items.popleft() if self._items else None

    async def get(self, silence_s: float, by: float = inf) -> InboxItem | None:
        """The oldest item; None after ``silence_s`` seconds, or at the time ``by`` of the queue's clock.

        The wait may not end earlier than that of the call before.
        """
        if not self._items:
            self._until, self._waiter = min(self._clock() + silence_s, by), self._loop.create_future()
            if self._timer is None:
                self._watch()
            await self._waiter
        return self.get_nowait()

    def close(self) -> None:
        """Stops the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _watch(self) -> None:
        """Wakes the reader if its time is over, and else starts the timer anew."""
        left = self._until - self._clock()
        self._timer = None
        if left > 0:
            self._timer = self._loop.call_later(left, self._watch)
        else:
            self._wake()


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

    def read(self) -> None:
        """Reads frames from the broker from now on."""
        self.reading.begin(self._receive)

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

    def _receive(self, frame: Frame) -> None:
        self._inbox.put(Arrival(Source.BUS, frame))

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
