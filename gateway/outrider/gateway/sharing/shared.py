"""One generation with any number of readers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from outrider.gateway.streams.stream import TokenStream
from outrider.mesh.errors import Internal, OutriderError, Unavailable
from outrider.mesh.registry import Member
from outrider.mesh.telemetry import get_logger
from outrider.wire.frames import Frame

_log = get_logger("sharing")


class Shared:
    """All frames of an answer as they come, kept from the first on.

    It is generated for as long as somebody reads it. ``ended`` is called once, when there is no more to come.
    """

    def __init__(self, stream: TokenStream, ended: Callable[[Shared], None]) -> None:
        self.stream, self._ended = stream, ended
        self.frames: list[Frame] = []
        self.error: OutriderError | None = None
        self.done = False
        self._loop = asyncio.get_running_loop()
        self._waiting: list[asyncio.Future[None]] = []
        self._readers = 0
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._running: asyncio.Task[None] | None = None

    @property
    def verifier(self) -> str:
        """Instance that has it."""
        return self.stream.verifier

    @property
    def lease(self) -> tuple[str, Member] | None:
        """As `TokenStream.lease`."""
        return self.stream.lease

    def enter(self) -> None:
        """One reader more; the first has it begin."""
        self._readers += 1
        self._running = self._running or asyncio.create_task(self._run())

    async def opened(self) -> None:
        """Returns when a verifier has it; errors as with `TokenStream.open`."""
        await asyncio.shield(self._opened)

    async def leave(self, *, cancel: bool) -> None:
        """One reader less; when the last has left, it is closed as `TokenStream.close`."""
        self._readers -= 1
        if self._readers or self._running is None:
            return
        self._end()
        self._running.cancel()
        await asyncio.wait({self._running})
        await self.stream.close(cancel=cancel)

    def follow(self, reason: str) -> None:
        """As `TokenStream.follow`."""
        self.stream.follow(reason)

    def wake(self) -> None:
        """Has all readers look again."""
        waiting, self._waiting = self._waiting, []
        for reader in waiting:
            if not reader.done():
                reader.set_result(None)

    async def news(self) -> None:
        """Returns when there is more than before, or the end."""
        reader: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(reader)
        await reader

    def _hear(self, frame: Frame) -> None:
        self.frames.append(frame)
        self.wake()

    async def _run(self) -> None:
        try:
            await self.stream.open()
            self._opened.set_result(None)
            async with aclosing(self.stream.frames(self._hear)) as batches:
                async for frames in batches:
                    for frame in frames:
                        self._hear(frame)
        except OutriderError as error:
            self.error = error
        except Exception:
            _log.exception("a shared stream failed", request=self.stream.job.request_id)
            self.error = Internal()
        self._end()

    def _end(self) -> None:
        if self.done:
            return
        self.done = True
        if not self._opened.done():
            self._opened.set_exception(self.error or Unavailable("the generation was given up", retry_after=1.0))
            self._opened.exception()  # that nobody waits for it any more is no fault
        self._ended(self)
        self.wake()
