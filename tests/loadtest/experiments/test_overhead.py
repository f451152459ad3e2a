"""The overhead in front of the engine: the echo, the client, and the thresholds of their figures."""

from __future__ import annotations

from pathlib import Path

import httpx
import msgspec
import pytest
from outrider.loadtest.experiments.overhead import Measurement, Target, judge, measure, services
from outrider.loadtest.load.echo_http import TEXT
from outrider.loadtest.load.repeated_request import RepeatedRequest, send_repeatedly


def measurement(target: str, load: str, rate: float, p50_ms: float, cpu_ms: float, events: float = 0.0) -> Measurement:
    return Measurement(target, load, 0, rate, rate * events, p50_ms, p50_ms, {"process": cpu_ms}, events)


def test_bars_are_of_medians_and_by_cpu() -> None:
    measured = [
        *(measurement("Outrider", "short", rate, 1, cpu) for rate, cpu in ((900, 0.4), (1000, 0.5), (9000, 5.0))),
        measurement("LiteLLM", "short", 50, 1, 20),
        measurement("engine", "short", 2000, 1, 0),
        measurement("Outrider", "streams", 100, 1, 2, events=64),
        measurement("LiteLLM", "streams", 10, 1, 50, events=64),
        measurement("Outrider", "half", 500, 2.0, 1),
        measurement("engine", "half", 500, 1.0, 0),
    ]
    assert [round(threshold.value, 6) for threshold in judge(measured)] == [40, 25, 0.5, 2]
    assert all(threshold.met for threshold in judge(measured))


def test_an_unmeasured_load_misses_its_threshold() -> None:
    assert not any(threshold.met for threshold in judge([measurement("Outrider", "short", 1000, 1, 1)]))


def test_a_failed_measurement_prints_its_reason(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        send_repeatedly(RepeatedRequest("http://127.0.0.1:9/v1/completions", [msgspec.Raw(b"{}")], 0.1, 1))
    assert "repeated_request:" in capfd.readouterr().err


def test_the_same_answers_come_with_outrider_before_the_engine_and_without(tmp_path: Path) -> None:
    with services(tmp_path) as targets:
        for target in targets:
            body = {"model": "pocket", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3}
            answer = httpx.post(f"{target.url}/v1/chat/completions", json=body, timeout=30)
            assert answer.json()["choices"][0]["message"]["content"] == 3 * TEXT
            _require_measurable(target)


def _require_measurable(target: Target) -> None:
    streams = measure(target, "streams", 0.3, 4, 0)
    assert streams.events == (65 if target.processes else 64)  # Outrider opens a chat with an extra event
    paced = measure(target, "half", 0.5, 4, 0, rate=40)
    assert paced.requests_per_s < 20 / (19 / 40) + 0.1  # 20 requests, the last one due after 19 pauses
    assert set(paced.cpu_ms) == ({"nats", "tokenizer", "gateway"} if target.processes else set())
    refused = RepeatedRequest(f"{target.url}/v1/nothing", [msgspec.Raw(b"{}")], 0.1, 1)
    with pytest.raises(SystemExit):
        send_repeatedly(refused)
