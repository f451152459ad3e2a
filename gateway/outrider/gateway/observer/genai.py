"""OpenTelemetry's metrics of generative models, for exporters that push them.

Names, units, attributes and buckets: OpenTelemetry's semantic conventions for generative AI, metrics of model servers
(https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/).
"""

from __future__ import annotations

import importlib
from typing import NamedTuple

from opentelemetry.metrics import Histogram, Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from outrider.mesh.errors import ConfigError

_OTLP_MODULE = "opentelemetry.exporter.otlp.proto.http.metric_exporter"
_OTLP_PACKAGE = "opentelemetry-exporter-otlp-proto-http"
_CLOSE_MS = 5000
_REQUEST = tuple(0.01 * 2**power for power in range(14))
_FIRST = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)


class EndedRequest(NamedTuple):
    """A request that has ended: its kind, model and seconds, and the error that ended it, or "".

    ``first_s`` and ``token_s`` are the time to the first token and the mean time of each further one; None if there is
    no such token.
    """

    operation: str
    model: str
    request_s: float
    first_s: float | None
    token_s: float | None
    error: str = ""


class GenAiMetrics:
    """Records ended requests, and exports them by ``reader`` once in a while."""

    def __init__(self, instance: str, reader: MetricReader) -> None:
        resource = Resource.create({"service.name": "outrider-gateway", "service.instance.id": instance})
        self._provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        meter = self._provider.get_meter("outrider")
        self._request = _histogram(meter, "request.duration", "Time of a request.", _REQUEST)
        self._first = _histogram(meter, "time_to_first_token", "Time to the first token.", _FIRST)
        self._token = _histogram(meter, "time_per_output_token", "Time of each token after the first.", _TOKEN)

    def record(self, request: EndedRequest) -> None:
        """Records a request."""
        attributes = {
            "gen_ai.operation.name": request.operation,
            "gen_ai.provider.name": "outrider",
            "gen_ai.request.model": request.model,
            "gen_ai.response.model": request.model,
        }
        failure = {"error.type": request.error} if request.error else {}
        self._request.record(request.request_s, attributes | failure)
        if request.first_s is not None:
            self._first.record(request.first_s, attributes)
        if request.token_s is not None:
            self._token.record(request.token_s, attributes)

    def close(self) -> None:
        """Exports what was recorded last; blocks for at most five seconds."""
        self._provider.shutdown(timeout_millis=_CLOSE_MS)


def open_genai(instance: str, exporter: str) -> GenAiMetrics | None:
    """Metrics that ``exporter`` (none, console or otlp) gets; None for none.

    Raises:
        ConfigError: the exporter's package is not installed.
    """
    if exporter == "none":
        return None
    if exporter == "console":
        return GenAiMetrics(instance, PeriodicExportingMetricReader(ConsoleMetricExporter()))
    try:
        module = importlib.import_module(_OTLP_MODULE)
    except ImportError:
        raise ConfigError(f"metrics_exporter = otlp needs the package {_OTLP_PACKAGE}: pip install it") from None
    return GenAiMetrics(instance, PeriodicExportingMetricReader(module.OTLPMetricExporter()))


def _histogram(meter: Meter, name: str, description: str, bounds: tuple[float, ...]) -> Histogram:
    return meter.create_histogram(
        f"gen_ai.server.{name}", "s", description, explicit_bucket_boundaries_advisory=list(bounds)
    )
