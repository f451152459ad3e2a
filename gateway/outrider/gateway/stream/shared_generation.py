"""One generation with any number of readers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from outrider.gateway.stream.answer import OnPlaced
from outrider.gateway.stream.token_stream import TokenStream
from outrider.mesh.errors import Internal, OutriderError, Unavailable
from outrider.mesh.registry import Member
from outrider.mesh.telemetry import get_logger
from outrider.wire.frames import Frame

_log = get_logger("sharing")


class SharedGeneration:
    """Reads ``stream`` and keeps all its frames for its readers.

    The generation starts with its first reader and is cancelled when its last reader leaves. ``on_end`` is called once,
    after the last frame.

    Attributes:
        frames: All frames so far.
        error: The error that ended the generation, or None.
    """

    def __init__(self, stream: TokenStream, on_end: Callable[[SharedGeneration], None]) -> None:
        self._stream, self._on_end = stream, on_end
        self.frames: list[Frame] = []
        self.error: OutriderError | None = None
        self._loop = asyncio.get_running_loop()
        self._waiting: list[asyncio.Future[None]] = []
        self._readers = 0
        self._ended = False
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._running: asyncio.Task[None] | None = None

    @property
    def verifier(self) -> str:
        """As `AnswerStream.verifier`."""
        return self._stream.verifier

    @property
    def member(self) -> Member | None:
        """The verifier that generates, or did last."""
        return self._stream.member

    @property
    def lease(self) -> tuple[str, Member] | None:
        """As `AnswerStream.lease`."""
        return self._stream.lease

    def on_placed(self, on_placed: OnPlaced) -> None:
        """Sets `AnswerStream.on_placed` of the stream."""
        self._stream.on_placed = on_placed

    def enter(self) -> None:
        """Adds a reader; the first one starts the generation."""
        self._readers += 1
        self._running = self._running or asyncio.create_task(self._run())

    async def wait_opened(self) -> None:
        """Returns when a verifier has the job; raises as `AnswerStream.open`."""
        await asyncio.shield(self._opened)

    async def leave(self, *, cancel: bool) -> None:
        """Removes a reader; the last one closes the stream, as `AnswerStream.close`."""
        self._readers -= 1
        if self._readers or self._running is None:
            return
        self._end()
        self._running.cancel()
        await asyncio.wait({self._running})
        await self._stream.close(cancel=cancel)

    def follow(self, reason: str) -> None:
        """As `AnswerStream.follow`."""
        self._stream.follow(reason)

    def wake(self) -> None:
        """Ends the wait of all readers."""
        waiting, self._waiting = self._waiting, []
        for reader in waiting:
            if not reader.done():
                reader.set_result(None)

    async def wait_changed(self) -> None:
        """Returns when there is another frame, the end, or a call of `wake`."""
        reader: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(reader)
        await reader

    async def _run(self) -> None:
        try:
            await self._stream.open()
            self._opened.set_result(None)
            async with aclosing(self._stream.frames()) as batches:
                async for frames in batches:
                    self.frames += frames
                    self.wake()
        except OutriderError as error:
            self.error = error
        except Exception:
            _log.exception("a shared stream failed", request=self._stream.job.request_id)
            self.error = Internal()
        self._end()

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        if not self._opened.done():
            self._opened.set_exception(self.error or Unavailable("the generation was given up", retry_after=1.0))
            self._opened.exception()  # marks the exception as read where no reader waits for it
        self._on_end(self)
        self.wake()
