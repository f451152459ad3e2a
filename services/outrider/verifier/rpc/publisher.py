"""Publishes the engine's outcomes to readers, proposers and metrics."""

from __future__ import annotations

import asyncio
from time import perf_counter

from opentelemetry.trace import SpanContext
from outrider.engine.decode.engine import Engine
from outrider.engine.decode.outcome import Outcome
from outrider.engine.requests.output import Output
from outrider.engine.requests.sequence import Request
from outrider.mesh.bus import Bus
from outrider.verifier.metrics import Metrics
from outrider.verifier.requests.conversion import frame
from outrider.verifier.rpc.frame_log import FrameLog
from outrider.verifier.rpc.leases import Leases
from outrider.verifier.rpc.proposers import RemoteDrafting
from outrider.verifier.tracing.trace import RequestTrace
from outrider.wire.frames import encode_frame, encode_tagged, token_subject

_MEASURED_EVERY_S = 0.1
"""Seconds between updates of Prometheus's counters, which cost as much as a small model's step. The end of a request
updates the counters at once."""
_Batches = dict[str, list[tuple[int, bytes]]]
"""Tags and frames by the subject of the gateway that reads them."""


class Publisher:
    """Publishes outcomes. Only in the event loop that created it.

    Args:
        instance: the verifier's name in the registry.
        bus: carries frames.
        log: keeps frames.
        leases: leases of requests.
        drafting: sends decisions to proposers.
        metrics: metrics of the verifier.
        engine: the engine.
    """

    def __init__(
        self,
        instance: str,
        bus: Bus,
        log: FrameLog,
        leases: Leases,
        drafting: RemoteDrafting,
        metrics: Metrics,
        engine: Engine,
    ) -> None:
        self._instance, self._bus, self._log, self._leases = instance, bus, log, leases
        self._drafting, self._metrics, self._engine = drafting, metrics, engine
        self._loop = asyncio.get_running_loop()
        self._update: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()

    def publish(self, outcome: Outcome) -> None:
        """Sends frames to readers, and the rest to proposers."""
        began = perf_counter()
        self._drafting.send(outcome)
        ended = False
        batches: _Batches = {}
        for request, output in outcome.outputs:
            if not request.prefill_only:
                ended |= output.finish is not None
                if request.trace is None:
                    self._send(request, output, batches)
                else:
                    self._send_traced(request, request.trace, output, (outcome.spans or {}).get(request.id))
        self._send_batches(batches)
        self.update_metrics(at_once=ended)
        self._metrics.publish_s += perf_counter() - began
        if not self._engine.load:
            self._idle.set()

    def _send(self, request: Request, output: Output, batches: _Batches) -> None:
        """Adds a frame to the batch of the request's gateway, and publishes it if there may be other readers."""
        last = output.finish is not None
        if last:
            self._leases.end(request.id)
        data = encode_frame(frame(output, self._instance))
        reader = self._log.append(request.id, data, output.first_index + len(output.tokens), last)
        if reader is not None:
            batches.setdefault(reader.subject, []).append((reader.tag, data))
        if reader is None or not reader.only:
            self._bus.publish(token_subject(request.tenant, request.id, unfiltered=request.filtered), data)

    def _send_batches(self, batches: _Batches) -> None:
        for subject, frames in batches.items():
            for message in encode_tagged(frames):
                self._bus.publish(subject, message)

    def _send_traced(self, request: Request, trace: RequestTrace, output: Output, step: SpanContext | None) -> None:
        batches: _Batches = {}
        with trace.publishing(step, output):
            self._send(request, output, batches)
            self._send_batches(batches)
        if output.finish is not None:
            trace.end(output)

    def update_metrics(self, at_once: bool = False) -> None:
        """Copies the engine's counters to Prometheus, soon or ``at_once``."""
        if self._update is not None and at_once:
            self._update.cancel()
            self._update = None
        if self._update is None:
            self._update = self._loop.call_later(0 if at_once else _MEASURED_EVERY_S, self._on_update)

    async def idle(self) -> None:
        """Returns when the engine has no more requests."""
        while self._engine.load:
            self._idle.clear()
            await self._idle.wait()

    def _on_update(self) -> None:
        self._update = None
        self._metrics.update()
