"""What a observer counts of a request, without a mesh."""

from __future__ import annotations

import time
from dataclasses import dataclass
from secrets import token_hex

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from outrider.gateway.admission.limit_store import Demand, LimitReached, LimitStatus
from outrider.gateway.errors import DeadlinePassed, UnknownModel
from outrider.gateway.identity.refusals import TooManyFailures, WrongKey, WrongScope
from outrider.gateway.observer.genai import GenAiMetrics, open_genai
from outrider.gateway.observer.refusals import cause_of
from outrider.gateway.observer.request_observer import ObservedRequest, Observers, RequestObserver
from outrider.gateway.observer.settings import MeasuringSettings, Price
from outrider.gateway.observer.tenant_labels import MOST_TENANTS, OTHER, TenantLabels
from outrider.mesh.errors import (
    Cancelled,
    ConfigError,
    ContextExceeded,
    DeadlineUnmeetable,
    Internal,
    OutriderError,
    Overloaded,
    Unavailable,
)
from outrider.mesh.telemetry import render
from outrider.wire.frames import Finish, Frame, Usage

LIMIT = LimitStatus(Demand("bucket", "requests per minute", "t", 1, 60, 1), 0, 1.0)


@dataclass
class Answer:
    spent: int = 0
    failed: OutriderError | None = None


@pytest.fixture
def model() -> str:
    """A name that no other test counts for."""
    return f"m{token_hex(4)}"


def value(name: str, *labels: str) -> float:
    """The sum of the series of a metric that have these labels."""
    lines = [line for line in render().decode().splitlines() if line.startswith(f"outrider_gateway_{name}{{")]
    return sum(float(line.split()[-1]) for line in lines if all(label in line for label in labels))


def read(observer: RequestObserver, tokens: int, finish: Finish | None = Finish.STOP) -> None:
    """Has a observer note an answer of one token a frame, and then its end."""
    for index in range(tokens):
        observer.note(0, [Frame("r", index, [7], ["x"], [""])])
    if finish is not None:
        observer.note(0, [Frame("r", tokens, [], [], [], finish, Usage(10, tokens, 4))])


def observer_of(
    model: str, settings: MeasuringSettings, genai: GenAiMetrics | None = None, age: float = 0
) -> RequestObserver:
    request = ObservedRequest(model, "measured", time.monotonic() - age, [10], 1, "chat")
    return RequestObserver(Observers(settings, genai), request)


def test_tokens_and_their_cost_are_counted_once_by_model_and_named_tenant(model: str) -> None:
    prices = {model: Price(prompt=2e6, cached=1e6, generated=3e6)}
    observer = observer_of(model, MeasuringSettings(metrics_tenants=["measured"], prices=prices))
    read(observer, 5)
    for _ in range(2):
        observer.end([Answer(spent=5)], owned=True)
    labels = f'model="{model}"', 'tenant="measured"'
    assert value("prompt_tokens_total", *labels) == 10
    assert value("cached_tokens_total", *labels) == 4
    assert value("generated_tokens_total", *labels) == 5
    assert value("cost_total", *labels) == 6 * 2 + 4 * 1 + 5 * 3


def test_an_answer_has_one_first_token_and_a_gap_before_each_other_delivery(model: str) -> None:
    observer = observer_of(model, MeasuringSettings(), age=5)
    read(observer, 5)
    observer.note(0, [Frame("r", 0, [7], ["x"], [""])])  # again, from another verifier
    observer.end([Answer(spent=5)], owned=True)
    label = f'model="{model}"'
    assert value("first_token_seconds_count", label) == 1
    assert value("first_token_seconds_sum", label) >= 5
    assert value("inter_token_seconds_count", label) == 4
    assert value("output_token_seconds_count", label) == 1
    assert value("request_seconds_count", label, 'outcome="stop"') == 1


def test_a_gateway_that_takes_a_stream_over_counts_later_tokens_alone_and_no_times(model: str) -> None:
    request = ObservedRequest(model, "t", time.monotonic(), [10], 1)
    observer = RequestObserver(Observers(MeasuringSettings(), None), request)
    observer.skip([3])
    read(observer, 5)
    observer.end([Answer(spent=5)], owned=True)
    label = f'model="{model}"'
    assert value("generated_tokens_total", label) == 2
    assert value("prompt_tokens_total", label) == 0
    assert value("first_token_seconds_count", label) == 0


@pytest.mark.parametrize(
    ("finish", "failed", "owned", "outcome"),
    [
        (Finish.LENGTH, None, True, "length"),
        (None, None, True, "cancelled"),
        (None, None, False, "moved"),
        (None, Cancelled("ended"), True, "cancelled"),
        (None, DeadlinePassed("late"), True, "timeout"),
        (None, ContextExceeded("no token is allowed"), True, "refused"),
        (None, Internal(), True, "failed"),
    ],
)
def test_the_outcome_says_how_a_request_ended(
    model: str, finish: Finish | None, failed: OutriderError | None, owned: bool, outcome: str
) -> None:
    observer = observer_of(model, MeasuringSettings())
    read(observer, 2, finish)
    observer.end([Answer(2, failed)], owned=owned)
    assert value("request_seconds_count", f'model="{model}"', f'outcome="{outcome}"') == 1


@pytest.mark.parametrize(
    ("age", "error", "met", "missed"),
    [
        (0, None, 1, 0),
        (9, None, 0, 1),
        (0, Unavailable("no verifier"), 0, 1),
        (0, LimitReached(LIMIT), 0, 0),
        (0, ContextExceeded("too long"), 0, 0),
    ],
)
def test_goodput_leaves_out_requests_that_are_wrong_or_over_a_limit(
    model: str, age: float, error: OutriderError | None, met: int, missed: int
) -> None:
    observer = observer_of(model, MeasuringSettings(slo_first_token_s=5), age=age)
    if error is None:
        read(observer, 2)
        observer.end([Answer(2)], owned=True)
    else:
        observer.refuse(error)
        observer.end([Answer()], owned=True)
    label = f'model="{model}"'
    assert (value("slo_requests_total", label, '"yes"'), value("slo_requests_total", label, '"no"')) == (met, missed)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (LimitReached(LIMIT), "limit"),
        (TooManyFailures("locked"), "limit"),
        (Overloaded("full"), "queue_full"),
        (DeadlineUnmeetable("late"), "deadline"),
        (DeadlinePassed("late"), "deadline"),
        (WrongKey("who"), "authentication"),
        (WrongScope("not here"), "permission"),
        (UnknownModel("what"), "unknown_model"),
        (ContextExceeded("too long"), "invalid"),
        (Unavailable("nobody"), "no_verifier"),
        (Internal(), None),
        (Cancelled("left"), None),
    ],
)
def test_a_refusal_has_a_cause_and_a_failure_has_none(error: OutriderError, cause: str | None) -> None:
    assert cause_of(error) == cause


def test_the_labels_of_tenants_are_bounded() -> None:
    hostile = [f"t{number}" for number in range(5 * MOST_TENANTS)]
    assert {TenantLabels([])(tenant) for tenant in hostile} == {""}
    listed = TenantLabels(["t1", "t2"])
    assert {listed(tenant) for tenant in hostile} == {"t1", "t2", OTHER}
    everyone = TenantLabels(["all"])
    assert {everyone(tenant) for tenant in hostile} == {*hostile[:MOST_TENANTS], OTHER}
    assert (everyone.own("t1"), everyone.own("t499"), TenantLabels([]).own("t1")) == ("t1", None, None)


def test_opentelemetry_gets_each_request_with_the_attributes_of_its_conventions(model: str) -> None:
    reader = InMemoryMetricReader()
    genai = GenAiMetrics("gateway-1", reader)
    observer = observer_of(model, MeasuringSettings(), genai)
    read(observer, 3)
    observer.end([Answer(3)], owned=True)
    data = reader.get_metrics_data()
    assert data is not None
    shown = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    assert set(shown) == {
        "gen_ai.server.request.duration",
        "gen_ai.server.time_to_first_token",
        "gen_ai.server.time_per_output_token",
    }
    for metric in shown.values():
        (point,) = metric.data.data_points
        assert metric.unit == "s"
        assert point.attributes == {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "outrider",
            "gen_ai.request.model": model,
            "gen_ai.response.model": model,
        }
    genai.close()


def test_an_exporter_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
    with pytest.raises(ConfigError, match="opentelemetry-exporter-otlp-proto-http"):
        open_genai("gateway-1", "otlp")
