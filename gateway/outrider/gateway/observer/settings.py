"""Settings of what the gateway measures."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct
from outrider.mesh.config.settings import Settings

Money = Annotated[float, Meta(ge=0)]
TargetSeconds = Annotated[float, Meta(ge=0, le=86400)]


class Price(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What a million tokens of a model cost; ``cached`` is for tokens of prompts that were found in pages."""

    prompt: Money = 0.0
    cached: Money = 0.0
    generated: Money = 0.0


class MeasuringSettings(Settings, kw_only=True, frozen=True):
    """Keys of the gateway's metrics, in the ``[gateway]`` table."""

    metrics_tenants: Annotated[
        list[str],
        Meta(
            description="tenants that metrics name; all names the first 100 that send requests; metrics call others "
            "`other`; empty: metrics tell no tenants apart"
        ),
    ] = []
    prices: Annotated[
        dict[str, Price],
        Meta(description="by model, the prices of a million tokens: prompt, cached and generated; for metrics of cost"),
    ] = {}
    slo_first_token_s: Annotated[
        TargetSeconds, Meta(description="seconds in which the first token is due, for the metric of goodput; 0: none")
    ] = 0.0
    slo_output_token_s: Annotated[
        TargetSeconds,
        Meta(description="seconds that a further token may take on average, for the metric of goodput; 0: none"),
    ] = 0.0
    speculation_metrics: Annotated[
        bool,
        Meta(description="whether an answer has the field metrics.speculative_decoding, as vLLM writes it"),
    ] = False
    metrics_exporter: Annotated[
        Literal["none", "console", "otlp"],
        Meta(
            description="where OpenTelemetry's metrics of requests go, beside /metrics; otlp reads the "
            "OTEL_EXPORTER_OTLP_* variables"
        ),
    ] = "none"
