"""Requests on their way into the engine: queued, logged and leased, or none of it."""

from __future__ import annotations

import asyncio

from outrider.mesh.errors import AlreadyExists, DeadlineUnmeetable
from outrider.mesh.worker import Inbox
from outrider.verifier.decode.engine import Engine
from outrider.verifier.decode.outcome import Queued
from outrider.verifier.metrics import Metrics
from outrider.verifier.requests.sequence import Request
from outrider.verifier.rpc.frame_log import Entry, FrameLog
from outrider.verifier.rpc.leases import Leases
from outrider.verifier.scheduling.refusals import queued


class Submissions:
    """Hands requests to the engine's thread. To be used in the event loop that made it.

    Args:
        engine: takes the requests.
        inbox: of the engine's thread.
        log: where their frames will be.
        leases: that end them.
        metrics: of the verifier.
    """

    def __init__(self, engine: Engine, inbox: Inbox, log: FrameLog, leases: Leases, metrics: Metrics) -> None:
        self._engine, self._inbox, self._log, self._leases, self._metrics = engine, inbox, log, leases, metrics
        self._loop = asyncio.get_running_loop()

    async def submit(self, request: Request, lease_s: float = 0.0, entry: Entry | None = None) -> Queued:
        """Queues a request; where it stands.

        The engine's thread opens the log and grants the lease if and only if the engine takes the request: a caller
        that leaves at any moment leaves either all of it or nothing.

        Raises:
            AlreadyExists: the engine holds the request.
            DeadlineUnmeetable, Overloaded, InvalidRequest: see `queued`.
        """

        def take() -> Queued:
            if self._engine.holds(request.id):
                raise AlreadyExists(f"request {request.id} is being served", param="request_id")
            place = self._engine.submit(request)
            self._loop.call_soon_threadsafe(self._on_taken, request.id, lease_s, entry)
            return place

        try:
            return await queued(self._inbox.call(take), self._metrics.queue_seconds())
        except DeadlineUnmeetable:
            self._metrics.unmeetable()
            raise

    async def run(self, request: Request) -> None:
        """Runs a request of the verifier's own to its end."""
        await self.submit(request)
        async for _ in self._log.follow(request.id, 0):
            pass

    async def cancel(self, request_id: str, reason: str | None = None) -> bool:
        """Ends a request; whether the engine had it."""
        return await asyncio.wrap_future(self._inbox.call(lambda: self._engine.cancel(request_id, reason)))

    async def holds(self, request_id: str) -> bool:
        """Whether the engine has the request; frames of earlier steps are in the log by then."""
        return await asyncio.wrap_future(self._inbox.call(lambda: self._engine.holds(request_id)))

    def _on_taken(self, request_id: str, lease_s: float, entry: Entry | None) -> None:
        """Runs before the request's first frame is published, and before its caller is answered."""
        self._log.open(request_id)
        if entry is not None:
            self._log.enter(request_id, entry)
        if lease_s:
            self._leases.grant(request_id, lease_s)
