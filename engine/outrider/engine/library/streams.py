"""Answers as they grow, by iteration and by `async for`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue

from outrider.engine.library.results import Increment, Result
from outrider.engine.library.running_engine import Reader, RunningEngine
from outrider.engine.requests.output import Output
from outrider.engine.requests.sequence import Request


@dataclass(frozen=True, slots=True)
class Asked:
    """A checked request for a running engine.

    Attributes:
        seed: of the dice, as users give it.
        drafts: whether results hold the trees of guesses.
        owner: lives as long as somebody reads the answer.
    """

    request: Request
    seed: int
    drafts: bool
    engine: RunningEngine
    owner: object

    def submit(self, reader: Reader) -> None:
        """Submits the request; raises as `RunningEngine.submit`."""
        self.engine.submit(self.request, reader)


class _Answer:
    """What both kinds of streams have read so far."""

    def __init__(self, asked: Asked) -> None:
        self._asked, self._outputs, self.ended = asked, list[Output](), False

    def take(self, news: Output | BaseException) -> Increment:
        """The increment in ``news``; raises an error."""
        if isinstance(news, BaseException):
            self.ended = True
            raise news
        self._outputs.append(news)
        self.ended = news.finish is not None
        return Increment.of(news, drafts=self._asked.drafts)

    def leave(self) -> None:
        """Ends the request, if it has not ended."""
        if not self.ended:
            self.ended = True
            self._asked.engine.leave(self._asked.request.id)

    @property
    def last(self) -> Output:
        return self._outputs[-1]

    def result(self) -> Result:
        asked = self._asked
        return Result.of(asked.request.prompt, asked.seed, self._outputs, drafts=asked.drafts)


class Stream(Iterator[Increment]):
    """An answer as it grows: iterate, and then ask for the `result`. The request has begun, and ends with the stream.

    Iteration raises `EngineStopped` if the engine ends before the answer.
    """

    def __init__(self, asked: Asked) -> None:
        self._news: SimpleQueue[Output | BaseException] = SimpleQueue()
        self._answer = _Answer(asked)
        asked.submit(self._news.put)

    def __next__(self) -> Increment:
        if self._answer.ended:
            raise StopIteration
        return self._answer.take(self._news.get())

    def result(self) -> Result:
        """Reads to the end; the whole answer."""
        for _ in self:
            pass
        return self._answer.result()

    def last(self) -> Output:
        """Reads to the end; the engine's last output."""
        for _ in self:
            pass
        return self._answer.last

    def close(self) -> None:
        """Ends the request; `result` is then what was read."""
        self._answer.leave()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # a stream that was refused
            self._answer.leave()


class AsyncStream(AsyncIterator[Increment]):
    """As `Stream`, for event loops. The request begins with the first increment that is asked for.

    ``ask`` makes the request in another thread: a prompt may be long, and a grammar has to be compiled.
    """

    def __init__(self, ask: Callable[[], Asked]) -> None:
        self._ask, self._begun = ask, False
        self._answer: _Answer | None = None

    async def __anext__(self) -> Increment:
        if not self._begun:
            await self._begin()
        if self._answer is None or self._answer.ended:
            raise StopAsyncIteration
        return self._answer.take(await self._news.get())

    async def result(self) -> Result:
        """Reads to the end; the whole answer."""
        async for _ in self:
            pass
        if self._answer is None:
            raise ValueError("a stream that has not begun has no result")
        return self._answer.result()

    async def aclose(self) -> None:
        """Ends the request; `result` is then what was read."""
        self._begun = True
        if self._answer is not None:
            self._answer.leave()

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if self._answer is not None:
            self._answer.leave()

    async def _begin(self) -> None:
        self._begun = True
        asked = await asyncio.to_thread(self._ask)
        self._news: asyncio.Queue[Output | BaseException] = asyncio.Queue()
        asked.submit(_reader(asyncio.get_running_loop(), self._news))
        self._answer = _Answer(asked)


def _reader(loop: asyncio.AbstractEventLoop, news: asyncio.Queue[Output | BaseException]) -> Reader:
    def read(each: Output | BaseException) -> None:
        with suppress(RuntimeError):  # the loop is closed, and the stream with it
            loop.call_soon_threadsafe(news.put_nowait, each)

    return read
