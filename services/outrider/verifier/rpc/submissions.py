"""Submits requests to the engine: a request is queued, logged and leased, or none of these."""

from __future__ import annotations

import asyncio
import time

from outrider.engine.decode.engine import Engine
from outrider.engine.decode.outcome import QueuePlace
from outrider.engine.requests.sequence import Request
from outrider.engine.scheduling.scheduler import QueueFull
from outrider.engine.worker import Inbox
from outrider.mesh.errors import AlreadyExists, DeadlineUnmeetable
from outrider.verifier.metrics import Metrics
from outrider.verifier.requests.refusals import queued
from outrider.verifier.rpc.frame_log import FrameLog, Reader, StreamEntry
from outrider.verifier.rpc.leases import Leases

_ESTIMATE_EVERY_S = 0.5
_MOST_RETRY_S = 600.0


class Submissions:
    """Passes requests to the engine's thread. Only in the event loop that created it.

    Args:
        engine: takes the requests.
        inbox: inbox of the engine's thread.
        log: gets a log for each request.
        leases: gets a lease for each request.
        metrics: metrics of the verifier.
    """

    def __init__(self, engine: Engine, inbox: Inbox, log: FrameLog, leases: Leases, metrics: Metrics) -> None:
        self._engine, self._inbox, self._log, self._leases, self._metrics = engine, inbox, log, leases, metrics
        self._loop = asyncio.get_running_loop()
        self._wait_s, self._estimated_at = 0.0, float("-inf")

    async def submit(
        self,
        request: Request,
        lease_s: float = 0.0,
        entry: StreamEntry | None = None,
        reader: Reader | None = None,
    ) -> QueuePlace:
        """Queues a request and returns its place in the queue.

        The engine's thread opens the log and grants the lease if and only if the engine takes the request. So a caller
        that leaves at any moment leaves all of these or none.

        Raises:
            AlreadyExists: the engine holds the request.
            DeadlineUnmeetable, Overloaded, InvalidRequest: see `queued`.
        """

        def take() -> QueuePlace:
            if self._engine.holds(request.id):
                raise AlreadyExists(f"request {request.id} is being served", param="request_id")
            try:
                place = self._engine.submit(request)
            except QueueFull:
                self._estimate_wait()
                raise
            if request.trace is not None:
                request.trace.begin()
            self._loop.call_soon_threadsafe(self._on_taken, request, lease_s, entry, reader)
            return place

        try:
            return await queued(self._inbox.call(take), lambda: self._wait_s)
        except DeadlineUnmeetable:
            self._metrics.unmeetable()
            raise

    async def run(self, request: Request) -> None:
        """Runs one of the verifier's own requests to its end."""
        await self.submit(request)
        async for _ in self._log.follow(request.id, 0):
            pass

    async def cancel(self, request_id: str, reason: str | None = None) -> bool:
        """Cancels a request; False if the engine does not hold it."""
        return await asyncio.wrap_future(self._inbox.call(lambda: self._engine.cancel(request_id, reason)))

    async def holds(self, request_id: str) -> bool:
        """Whether the engine holds the request; on return the log has the frames of all earlier steps."""
        return await asyncio.wrap_future(self._inbox.call(lambda: self._engine.holds(request_id)))

    def _estimate_wait(self) -> None:
        """Estimates how long a request behind all others would wait, once in a while. In the engine's thread."""
        now = time.monotonic()
        if now - self._estimated_at > _ESTIMATE_EVERY_S:
            wait_s, self._estimated_at = self._engine.estimate.queue(self._engine.scheduler), now
            self._wait_s = min(max(wait_s, 1.0), _MOST_RETRY_S)

    def _on_taken(self, request: Request, lease_s: float, entry: StreamEntry | None, reader: Reader | None) -> None:
        """Opens the log and the lease, before the first frame is published and before the caller gets its answer."""
        self._log.open(request.id, request.tenant, reader)
        if entry is not None:
            self._log.add_entry(request.id, entry)
        if lease_s:
            self._leases.grant(request.id, lease_s)
