"""Answers the calls of shared streams: the other end of `outrider.mesh.rpc.shared_stream`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from grpc.aio import ServicerContext as Context
from outrider.mesh.errors import OutriderError, trailing_metadata
from outrider.mesh.rpc.handlers import Admit, failure_of
from outrider.mesh.rpc.shared_stream import BATCH_BYTES
from outrider.v1 import calls_pb2 as pb
from outrider.v1.calls_pb2_grpc import CallsServicer

Find = Callable[[str], "grpc.RpcMethodHandler[Any, Any] | None"]
"""The unary handler of a method, without guards; None if there is none."""

_UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED.value[0]


class Exchanges(CallsServicer):
    """Runs calls of shared streams by the handlers that ``find`` finds, for callers that ``admit`` admits."""

    def __init__(self, find: Find, admit: Admit | None) -> None:
        self._find, self._admit = find, admit
        self._open: set[_Exchange] = set()
        self._stopping = False

    async def Exchange(self, requests: AsyncIterator[pb.CallBatch], context: Context) -> AsyncIterator[pb.AnswerBatch]:  # noqa: N802
        """Answers the calls of one stream, each as soon as its handler is done."""
        exchange = _Exchange(self._find, self._admit, context)
        self._open.add(exchange)
        if self._stopping:
            exchange.finish()
        reading = asyncio.create_task(exchange.read(requests))
        try:
            while (answers := await exchange.next()) is not None:
                yield answers
        finally:
            self._open.discard(exchange)
            reading.cancel()
            exchange.cancel()

    def stop(self) -> None:
        """Ends all streams, behind the answers to their calls so far."""
        self._stopping = True
        for each in self._open:
            each.finish()


class _Exchange:
    """One stream: the calls that run, and the answers that wait to be sent."""

    def __init__(self, find: Find, admit: Admit | None, context: Context) -> None:
        self._find, self._admit, self._context = find, admit, context
        self._running: dict[int, asyncio.Task[None]] = {}
        self._answers, self._news = deque[pb.Answer](), asyncio.Event()
        self._admitted: set[str] = set()
        self._finishing = False

    async def read(self, requests: AsyncIterator[pb.CallBatch]) -> None:
        """Starts the calls that arrive, and cancels those that nobody waits for."""
        try:
            async for batch in requests:
                for call in batch.calls:
                    self._begin(call)
                for number in batch.cancelled:
                    self._cancel(number)
        finally:
            self.finish()

    async def next(self) -> pb.AnswerBatch | None:
        """The answers that are ready, once there are some; None after the last."""
        while not self._answers:
            if self._finishing and not self._running:
                return None
            await self._news.wait()
            self._news.clear()
        batch, size = pb.AnswerBatch(), 0
        while self._answers and size < BATCH_BYTES:
            size += len(self._answers[0].response)
            batch.answers.append(self._answers.popleft())
        return batch

    def finish(self) -> None:
        """Refuses calls that come from now on."""
        self._finishing = True
        self._news.set()

    def cancel(self) -> None:
        """Cancels the calls that run."""
        for task in self._running.values():
            task.cancel()

    def _begin(self, call: pb.Call) -> None:
        if self._finishing:
            self._send(pb.Answer(number=call.number, refused=True))
        else:
            self._running[call.number] = asyncio.create_task(self._run(call))

    def _cancel(self, number: int) -> None:
        if (task := self._running.pop(number, None)) is not None:
            task.cancel()
            self._news.set()  # it may have been the last one

    async def _run(self, call: pb.Call) -> None:
        try:
            answer = pb.Answer(number=call.number, response=await self._answer(call.method, call.request))
        except NotImplementedError:
            missing = pb.Failure(code=_UNIMPLEMENTED, message=f"{call.method} is not implemented")
            answer = pb.Answer(number=call.number, failure=missing)
        except Exception as error:
            answer = pb.Answer(number=call.number, failure=_failure(failure_of(call.method, error)))
        self._running.pop(call.number, None)
        self._send(answer)

    def _send(self, answer: pb.Answer) -> None:
        self._answers.append(answer)
        self._news.set()

    async def _answer(self, method: str, request: bytes) -> bytes:
        if self._admit is not None and method not in self._admitted:
            self._admit(method, self._context)
            self._admitted.add(method)
        handler = self._find(method)
        if handler is None:
            raise NotImplementedError
        response = await handler.unary_unary(handler.request_deserializer(request), self._context)
        return handler.response_serializer(response)  # type: ignore[no-any-return]


def _failure(error: OutriderError) -> pb.Failure:
    return pb.Failure(code=error.code.value[0], message=error.message, metadata=dict(trailing_metadata(error)))
