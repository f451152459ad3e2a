"""One request's reading of an answer that it may share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from outrider.gateway.sharing.cache import Cached
from outrider.gateway.sharing.shared import Shared
from outrider.gateway.stream import TokenStream
from outrider.gateway.verifiers import Job
from outrider.mesh.bus import Bus, Message, Subscription
from outrider.mesh.errors import Cancelled, OutriderError
from outrider.mesh.registry import Member
from outrider.wire.frames import Finish, Frame, decode_frame


class Reader:
    """Reads a shared answer from its first token on, in the place of a `TokenStream` of its own.

    The one who ``leads`` is the one whose job the verifier has. Where somebody ends that one's stream, the others go on
    with an ``own`` generation, with the tokens so far. The others listen for the end of their own on the ``bus``.
    """

    logged, open_ended, untouched = 0, True, False

    def __init__(
        self,
        job: Job,
        shared: Shared | Cached,
        own: Callable[[], TokenStream],
        settled: Callable[[], None],
        bus: Bus,
        *,
        leads: bool,
    ) -> None:
        self.job, self._shared, self._leads = job, shared, leads
        self._make_own, self._settled, self._bus = own, settled, bus
        self._listening: Subscription | None = None
        self._cancelled: Cancelled | None = None
        self._own: TokenStream | None = None
        self._place = self._skip = self.spent = 0
        self._left = self._opened = self.finished = False
        self.failed: OutriderError | None = None
        shared.enter()

    @property
    def verifier(self) -> str:
        """Instance that generates what is read."""
        return self._own.verifier if self._own else self._shared.verifier

    @property
    def placed(self) -> bool:
        """Whether a verifier has taken what is read."""
        return self._opened or (self._leads and bool(self.verifier))

    @property
    def holder(self) -> str:
        """Instance that has the request under its own id; nobody where another request's answer is read."""
        if self._own is not None:
            return self._own.verifier
        return self._shared.verifier if self._leads else ""

    @property
    def lease(self) -> tuple[str, Member] | None:
        """What has to be renewed for it to go on."""
        return self._own.lease if self._own else self._shared.lease

    async def open(self) -> None:
        """As `TokenStream.open`."""
        if not self._leads:
            self._listening = await self._bus.subscribe(self.job.subject, self._on_message)
        await self._shared.opened()
        self._opened = True
        self._settled()

    async def frames(self) -> AsyncGenerator[list[Frame], None]:
        """As `TokenStream.frames`; it may be read on after it was left."""
        while not self.finished and self._own is None:
            fresh = self._shared.frames[self._place :]
            if self._cancelled is not None:
                self.failed = self._cancelled
                raise self.failed
            if fresh:
                yield self._take(fresh)
            elif self._shared.error is None:
                await self._shared.news()
            elif isinstance(self._shared.error, Cancelled) and not self._leads:
                await self._go_alone()
            else:
                self.failed = self._shared.error
                raise self.failed
        if self._own is not None:
            async with aclosing(self._alone(self._own)) as batches:
                async for frames in batches:
                    yield frames

    async def close(self, *, cancel: bool = True) -> None:
        """As `TokenStream.close`; what others read goes on."""
        if not self._left:
            self._left = True
            await self._shared.leave(cancel=cancel)
        if self._own is not None:
            await self._own.close(cancel=cancel)
        if self._listening is not None:
            await self._listening.unsubscribe()

    def follow(self, reason: str) -> None:
        """As `TokenStream.follow`."""
        (self._own or self._shared).follow(reason)

    def _on_message(self, message: Message) -> None:
        frame = decode_frame(message.data)
        if frame.finish is Finish.CANCELLED and frame.error is not None:
            self._cancelled = Cancelled(frame.error)
            self._shared.wake()

    def _take(self, frames: list[Frame]) -> list[Frame]:
        last = frames[-1]
        self._place += len(frames)
        self.spent = max(self.spent, last.first_index + len(last.tokens))
        self.finished = last.finish is not None
        return frames

    async def _go_alone(self) -> None:
        known = list(self._shared.frames)

        async def logged(job: Job) -> Sequence[Frame]:
            return known

        own = self._make_own()
        self._own, self._skip = own, self._place
        await own.attach(logged, None)

    async def _alone(self, own: TokenStream) -> AsyncGenerator[list[Frame], None]:
        """What the own generation says behind what was read before."""
        try:
            async with aclosing(own.frames()) as batches:
                async for frames in batches:
                    fresh, self._skip = frames[self._skip :], max(self._skip - len(frames), 0)
                    if fresh:
                        yield self._take(fresh)
        except OutriderError as error:
            self.failed = error
            raise
