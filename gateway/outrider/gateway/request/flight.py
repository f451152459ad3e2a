"""A request in flight: the streams of its choices, its record and its charge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any, TypeVar

from outrider.gateway.admission.caller import Caller
from outrider.gateway.admission.charge import Charge
from outrider.gateway.ledger.record import Key, Record
from outrider.gateway.ledger.record_writer import Recording
from outrider.gateway.observer.request_observer import RequestObserver
from outrider.gateway.stream.answer import AnswerStream
from outrider.mesh.errors import OutriderError
from outrider.mesh.tasks import Tasks
from outrider.wire.frames import Frame

T = TypeVar("T")
Read = Callable[[AnswerStream], AsyncGenerator[list[Frame], None]]
_Batch = tuple[int, list[Frame]]
_News = _Batch | Exception | None


def read_unfiltered(stream: AnswerStream) -> AsyncGenerator[list[Frame], None]:
    """The frames of a stream without filters."""
    return stream.frames()


class Flight:
    """One request's streams, one for each choice; ``read`` gives the frames of one.

    Attributes:
        recording: Its record in the ledger.
        owned: Whether the end of this flight cancels the request: no other reader has taken the request over.
        background_reader: The task that reads on after the client has left, if there is one.
        observer: Measures the request, and reports its end.
    """

    def __init__(
        self,
        recording: Recording,
        charge: Charge,
        streams: Sequence[AnswerStream],
        observer: RequestObserver,
        read: Read,
        *,
        owned: bool,
    ) -> None:
        self.recording, self.streams, self.observer, self.owned = recording, streams, observer, owned
        self._charge, self._read = charge, read
        self.background_reader: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._withdrawn: OutriderError | None = None
        self._waiting: asyncio.Task[Any] | None = None
        for stream in streams:
            stream.on_placed = self._on_placed

    @property
    def key(self) -> Key:
        """The name of the request."""
        return self.recording.key

    @property
    def record(self) -> Record:
        """The record from which another gateway can resume the request."""
        return self.recording.record

    @property
    def caller(self) -> Caller:
        """The caller for whom the request runs."""
        return self.streams[0].job.caller

    @property
    def placed(self) -> bool:
        """Whether each choice has a verifier, or comes from elsewhere."""
        return all(stream.placed for stream in self.streams)

    @property
    def running(self) -> bool:
        """Whether there is more to come."""
        if self._withdrawn is not None:
            return False
        unfinished = any(not stream.finished for stream in self.streams)
        return unfinished and all(stream.failed is None for stream in self.streams)

    async def frames(self) -> AsyncGenerator[_Batch, None]:
        """Frames of all choices as they arrive, each batch with the index of its choice.

        Raises the first failure of a stream, or the reason of `withdraw`.
        """
        if len(self.streams) > 1:
            async with aclosing(_merged([self._read(stream) for stream in self.streams])) as merged:
                while (batch := await self._next(merged)) is not None:
                    self.observer.note(*batch)
                    yield batch
            return
        async with aclosing(self._read(self.streams[0])) as batches:
            while (frames := await self._next(batches)) is not None:
                self.observer.note(0, frames)
                yield 0, frames

    def withdraw(self, why: OutriderError) -> bool:
        """Has the reader of `frames` fail with ``why``: at once if it waits for frames, else when it asks for more.

        Returns False if the flight was withdrawn before.
        """
        if self._withdrawn is not None:
            return False
        self._withdrawn = why
        if self._waiting is not None:
            self._waiting.cancel()
        return True

    def _on_placed(self) -> None:
        """Notes that a verifier has taken a choice for this flight: it owns the request, and the record changes."""
        self.owned = True
        self.recording.write()

    def own(self) -> None:
        """Takes the request over from its other readers."""
        self.owned = True

    def disown(self) -> None:
        """Leaves the request to another reader."""
        self.owned = False

    def read_in_background(self, reader: asyncio.Task[None]) -> None:
        """Notes that the task ``reader`` reads on, and ends the flight when it is done or cancelled."""
        self.background_reader = reader

    async def close(self) -> None:
        """Closes all streams, also where one of them fails; cancels them at their verifiers if the request is owned."""
        self.recording.close()
        self.observer.end(self.streams, owned=self.owned)
        async with AsyncExitStack() as closing:
            for stream in self.streams:
                closing.push_async_callback(stream.close, cancel=self.owned)

    async def settle(self, tasks: Tasks) -> None:
        """Charges the generated tokens, once; nothing if the deadline passed before any computation.

        A charge that gateways share is written on ``tasks``, so that it outlasts the cancellation of the caller.
        """
        if not self._charge.shared:
            return await self._settle()
        self._settling = self._settling or tasks.spawn(self._settle(), "charge")
        await asyncio.shield(self._settling)

    async def _settle(self) -> None:
        if all(stream.expired_unstarted for stream in self.streams):
            self._charge.waive()
        spent = [stream.spent for stream in self.streams]
        charged = await self._charge.settle(spent)
        errors = [self._withdrawn, *(stream.failed for stream in self.streams)]
        error = next((each for each in errors if each is not None), None)
        self.observer.report(self._charge.admission, self.key.request, spent, charged, error)

    async def _next(self, batches: AsyncGenerator[T, None]) -> T | None:
        if self._withdrawn is not None:
            raise self._withdrawn
        self._waiting = waiting = asyncio.current_task()
        try:
            if self.observer.span is None:
                return await anext(batches, None)
            with self.observer.span.entered():
                return await anext(batches, None)
        except asyncio.CancelledError:
            if self._withdrawn is not None and waiting is not None and waiting.uncancel() == 0:
                raise self._withdrawn from None
            raise
        finally:
            self._waiting = None


async def _merged(streams: Sequence[AsyncGenerator[list[Frame], None]]) -> AsyncGenerator[_Batch, None]:
    news: asyncio.Queue[_News] = asyncio.Queue()
    readers = [asyncio.create_task(_read(choice, stream, news)) for choice, stream in enumerate(streams)]
    reading = len(readers)
    try:
        while reading:
            item = await news.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                reading -= 1
            else:
                yield item
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.wait(readers)


async def _read(choice: int, stream: AsyncGenerator[list[Frame], None], news: asyncio.Queue[_News]) -> None:
    """Puts the stream's batches into ``news``, and then its end: None, or the error."""
    try:
        async with aclosing(stream) as batches:
            async for frames in batches:
                news.put_nowait((choice, frames))
        news.put_nowait(None)
    except Exception as error:
        news.put_nowait(error)
