"""Unary calls to one service over one stream: those that one turn of the event loop makes are one message.

A call of its own costs a process about 0.2 ms, most of it in gRPC, whatever it carries.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import grpc
from outrider.mesh.errors import DeadlineExceeded, Unavailable, Unreachable, from_rpc, from_status
from outrider.v1 import calls_pb2 as pb
from outrider.v1.calls_pb2_grpc import CallsStub

_LARGE = 256 << 10
"""Bytes of a request that gets a call of its own, so that others do not wait until it is sent."""
BATCH_BYTES = 1 << 20
"""Bytes of requests, or of responses, from which on a message takes no more of them."""

_CODES = {code.value[0]: code for code in grpc.StatusCode}


class SharedChannel:
    """What a stub needs of ``channel``. Its unary calls share one stream; all others are as on ``channel``.

    A unary call is alone on ``channel`` if its request is large, and after `retire`. All are if the service lacks the
    method `Exchange`: services of earlier versions do.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel, self._stream = channel, SharedStream(channel)
        self.unary_stream, self.stream_unary = channel.unary_stream, channel.stream_unary
        self.stream_stream = channel.stream_stream
        self._shares = True

    def unary_unary(
        self,
        path: str,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], Any],
        **options: Any,
    ) -> Callable[..., Any]:
        """As gRPC's; the calls raise `OutriderError` as well."""
        alone = self._channel.unary_unary(path, request_serializer, response_deserializer, **options)

        async def call(request: Any, timeout: float) -> Any:
            if not self._shares or request.ByteSize() > _LARGE:
                return await alone(request, timeout=timeout)
            try:
                return response_deserializer(await self._stream.ask(path, request_serializer(request), timeout))
            except NotSharedHere:
                self._shares = False
                return await alone(request, timeout=timeout)

        return call

    def retire(self) -> None:
        """Ends the stream once its calls have been answered."""
        self._shares = False
        self._stream.finish()


class NotSharedHere(Exception):
    """The service does not know shared streams."""


class SharedStream:
    """A stream of calls, which opens with the first call and again with the first one after it broke."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel, self._loop = channel, asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._calls, self._cancelled = deque[pb.Call](), list[int]()
        self._news = asyncio.Event()
        self._last = 0
        self._running: asyncio.Task[None] | None = None
        self._finishing = False

    async def ask(self, method: str, request: bytes, timeout: float) -> bytes:
        """The serialized response of ``method``.

        Raises:
            OutriderError: as `outrider.mesh.rpc.call`.
            NotSharedHere: the service has no shared streams.
        """
        if self._running is None:
            self._running = self._loop.create_task(self._run())
        self._last = number = self._last + 1
        self._calls.append(pb.Call(number=number, method=method, request=request))
        self._news.set()
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._waiting[number] = answer
        timer = self._loop.call_later(timeout, _expire, answer)
        try:
            return await answer
        finally:
            timer.cancel()
            if self._waiting.pop(number, None) is not None:
                self._cancelled.append(number)
                self._news.set()

    def finish(self) -> None:
        """Ends the stream once no call waits for its answer."""
        self._finishing = True
        self._news.set()

    async def _run(self) -> None:
        error: Callable[[], Exception] = partial(Unavailable, "the service ended while it had the call")
        writer: asyncio.Task[None] | None = None
        try:
            stream = CallsStub(self._channel).Exchange()
            writer = self._loop.create_task(self._write(stream))
            while (answers := await stream.read()) is not grpc.aio.EOF:
                for answer in answers.answers:
                    self._settle(answer)
        except grpc.aio.AioRpcError as failure:
            missing = failure.code() is grpc.StatusCode.UNIMPLEMENTED
            error = NotSharedHere if missing else partial(from_rpc, failure)
        except grpc.aio.UsageError:  # the channel is closed
            error = partial(Unreachable, "the connection was closed")
        finally:
            if writer is not None:
                writer.cancel()
                stream.cancel()
            self._running = None
            self._calls.clear()
            self._cancelled.clear()
            waiting, self._waiting = self._waiting, {}
            for each in waiting.values():
                if not each.done():
                    each.set_exception(error())  # one of its own: tracebacks of a shared one would join

    async def _write(self, stream: Any) -> None:
        """Sends what waits, as one message, whenever the message before it has been sent."""
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # `_run` sees why
            while not self._finishing or self._waiting:
                await self._news.wait()
                self._news.clear()
                while self._calls or self._cancelled:
                    await stream.write(self._take())
            await stream.done_writing()

    def _take(self) -> pb.CallBatch:
        """The calls that wait, of at most about `BATCH_BYTES`, and the numbers of calls that nobody waits for."""
        batch, size = pb.CallBatch(cancelled=self._cancelled), 0
        self._cancelled.clear()
        while self._calls and size < BATCH_BYTES:
            call = self._calls.popleft()
            if call.number in self._waiting:
                size += len(call.request)
                batch.calls.append(call)
        return batch

    def _settle(self, answer: pb.Answer) -> None:
        waiting = self._waiting.pop(answer.number, None)
        if self._finishing:
            self._news.set()
        if waiting is None or waiting.done():
            return
        if answer.HasField("failure"):
            failure = answer.failure
            code = _CODES.get(failure.code, grpc.StatusCode.UNKNOWN)
            waiting.set_exception(from_status(code, failure.message, failure.metadata))
        elif answer.refused:
            waiting.set_exception(Unreachable("the service is about to end"))
        else:
            waiting.set_result(answer.response)


def _expire(answer: asyncio.Future[bytes]) -> None:
    if not answer.done():
        answer.set_exception(DeadlineExceeded("Deadline Exceeded"))
