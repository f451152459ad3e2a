"""One job's reading of a generation that several jobs share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from outrider.gateway.routing.job import Job
from outrider.gateway.stream.answer import OnPlaced, ignore_placement
from outrider.gateway.stream.frame_reader import FrameReader
from outrider.gateway.stream.replay import failure_of
from outrider.gateway.stream.shared_generation import SharedGeneration
from outrider.gateway.stream.token_stream import TokenStream
from outrider.mesh.errors import Cancelled, OutriderError
from outrider.mesh.registry import Member
from outrider.wire.frames import Frame


class CoalescedStream:
    """An `AnswerStream` that reads a shared generation from its first token on.

    The leader's job is the one that the verifier has. The others follow: they listen for the cancellation of their own
    stream, and if somebody cancels the leader's stream, each goes on alone after the tokens that it has.

    Attributes:
        spent: Tokens read so far.
    """

    expired_unstarted = False

    def __init__(
        self,
        job: Job,
        shared: SharedGeneration,
        generate_alone: Callable[[], TokenStream],
        reader: FrameReader,
        *,
        leads: bool,
    ) -> None:
        self.job, self._shared, self._generate_alone = job, shared, generate_alone
        self._leads, self._on_placed = leads, ignore_placement
        self._ends = reader.reading(job.subject)
        self._cancelled: Cancelled | None = None
        self._alone: TokenStream | None = None
        self._read = self._skip = self.spent = 0
        self._left = self._opened = self.finished = False
        self.failed: OutriderError | None = None
        shared.enter()

    @property
    def on_placed(self) -> OnPlaced:
        """As `AnswerStream.on_placed`; the leader's is that of the shared generation."""
        return self._on_placed

    @on_placed.setter
    def on_placed(self, on_placed: OnPlaced) -> None:
        self._on_placed = on_placed
        if self._leads:
            self._shared.on_placed(on_placed)

    @property
    def verifier(self) -> str:
        """As `AnswerStream.verifier`."""
        return (self._alone or self._shared).verifier

    @property
    def placed(self) -> bool:
        """Whether a verifier has taken the job that is read."""
        return self._opened or (self._leads and bool(self.verifier))

    @property
    def holder(self) -> str:
        """As `AnswerStream.holder`; empty while another job's answer is read."""
        return self.verifier if self._leads or self._alone is not None else ""

    @property
    def lease(self) -> tuple[str, Member] | None:
        """As `AnswerStream.lease`."""
        return (self._alone or self._shared).lease

    async def open(self) -> None:
        """As `AnswerStream.open`."""
        if not self._leads:
            self._ends.begin(self._on_end)
        await self._shared.wait_opened()
        self._opened = True
        if not self._leads:
            self._on_placed()

    async def frames(self) -> AsyncGenerator[list[Frame], None]:
        """As `AnswerStream.frames`; may be called again after it was left."""
        try:
            while not self.finished and self._alone is None:
                if (fresh := await self._next()) is not None:
                    yield self._take(fresh)
            if self._alone is not None:
                async with aclosing(self._frames_alone(self._alone)) as batches:
                    async for frames in batches:
                        yield frames
        except OutriderError as error:
            self.failed = error
            raise

    async def close(self, *, cancel: bool = True) -> None:
        """As `AnswerStream.close`; the generation goes on for its other readers."""
        self.on_placed = ignore_placement
        if not self._left:
            self._left = True
            await self._shared.leave(cancel=cancel)
        if self._alone is not None:
            await self._alone.close(cancel=cancel)
        self._ends.close()

    def follow(self, reason: str) -> None:
        """As `AnswerStream.follow`."""
        (self._alone or self._shared).follow(reason)

    def _on_end(self, frame: Frame) -> None:
        if isinstance(failure := failure_of(frame), Cancelled):
            self._cancelled = failure
            self._shared.wake()

    async def _next(self) -> list[Frame] | None:
        """The frames that were not read yet; None if there are none, and the answer may go on alone from now on."""
        fresh, error = self._shared.frames[self._read :], self._shared.error
        if self._cancelled is not None:
            raise self._cancelled
        if fresh:
            return fresh
        if error is None:
            await self._shared.wait_changed()
        elif isinstance(error, Cancelled) and not self._leads:
            await self._go_alone()
        else:
            raise error
        return None

    def _take(self, frames: list[Frame]) -> list[Frame]:
        last = frames[-1]
        self._read += len(frames)
        self.spent = max(self.spent, last.first_index + len(last.tokens))
        self.finished = last.finish is not None
        return frames

    async def _go_alone(self) -> None:
        frames = list(self._shared.frames)

        async def read_log(job: Job) -> Sequence[Frame]:
            return frames

        self._alone, self._skip = self._generate_alone(), self._read
        self._alone.on_placed = self._on_placed
        await self._alone.attach(read_log, None)

    async def _frames_alone(self, stream: TokenStream) -> AsyncGenerator[list[Frame], None]:
        """The frames of ``stream`` that follow those read before."""
        async with aclosing(stream.frames()) as batches:
            async for frames in batches:
                fresh, self._skip = frames[self._skip :], max(self._skip - len(frames), 0)
                if fresh:
                    yield self._take(fresh)
