"""The services' end of lanes: each call runs by itself, and outcomes go back as they come, together where they can."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import grpc
from grpc.aio import ServicerContext as Context
from outrider.mesh.errors import Internal, NotFound, OutriderError, from_rpc
from outrider.mesh.rpc.calls import Batches, Call, Failure, Outcome, decode_calls
from outrider.mesh.telemetry import continued, get_logger, tracing

_log = get_logger("rpc")

Methods = Mapping[str, Any]


class Lanes:
    """Serves the unary ones of ``methods`` on streams that callers keep open."""

    def __init__(self, methods: Methods) -> None:
        self._methods = methods
        self._open: set[_Served] = set()
        self.handler = grpc.stream_stream_rpc_method_handler(self._serve)

    def drain(self) -> None:
        """Has each lane end when what was asked on it is answered."""
        for lane in self._open:
            lane.drain()

    async def _serve(self, requests: Any, context: Context) -> None:
        lane = _Served(self._methods, context)
        self._open.add(lane)
        try:
            await lane.run()
        finally:
            self._open.discard(lane)


class _Served:
    def __init__(self, methods: Methods, context: Context) -> None:
        self._methods, self._context = methods, context
        self._outgoing: Batches[Outcome] = Batches()
        self._answering: dict[int, asyncio.Task[None]] = {}
        self._writing: asyncio.Task[None] | None = None
        self._draining = False

    async def run(self) -> None:
        self._reading = asyncio.create_task(self._read())
        try:
            await asyncio.wait({self._reading})
            if self._writing is not None:
                await asyncio.wait({self._writing})
        finally:
            self._reading.cancel()
            for task in self._answering.values():
                task.cancel()

    def drain(self) -> None:
        self._draining = True
        if not self._answering:
            self._reading.cancel()

    async def _read(self) -> None:
        while (data := await self._context.read()) is not grpc.aio.EOF:
            for call in decode_calls(data):
                if call.method:
                    self._answering[call.number] = asyncio.create_task(self._answer(call))
                elif (task := self._answering.pop(call.number, None)) is not None:
                    task.cancel()

    async def _answer(self, call: Call) -> None:
        try:
            with continued(call.headers, call.method) if tracing() else nullcontext():
                outcome = Outcome(call.number, await self._result(call))
        except OutriderError as error:
            outcome = Outcome(call.number, b"", Failure.of(error))
        except grpc.aio.AioRpcError as error:
            outcome = Outcome(call.number, b"", Failure.of(from_rpc(error)))
        except Exception:
            _log.exception("a handler failed", method=call.method)
            outcome = Outcome(call.number, b"", Failure.of(Internal()))
        finally:
            self._answering.pop(call.number, None)
            if self._draining:
                self.drain()
        self._put(outcome)

    async def _result(self, call: Call) -> bytes:
        handler = self._methods.get(call.method)
        if handler is None or handler.unary_unary is None:
            raise NotFound(f"{call.method} is no method that can be called here")
        response = await handler.unary_unary(handler.request_deserializer(call.data), self._context)
        return bytes(handler.response_serializer(response))

    def _put(self, outcome: Outcome) -> None:
        self._outgoing.put(outcome)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._outgoing:
                await self._context.write(self._outgoing.take())
        except (grpc.aio.BaseError, asyncio.InvalidStateError):
            pass  # who asked is gone
        finally:
            self._writing = None
