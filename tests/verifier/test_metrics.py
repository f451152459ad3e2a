"""The verifier's metrics of an engine, of guesses and of GPUs."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from outrider.engine.speculation import DrafterContext
from outrider.engine.speculation.drafters.random_drafter import RandomDrafter
from outrider.mesh.telemetry import render
from outrider.verifier.metrics import Metrics, show_gpus
from outrider.verifier.tracing.step_telemetry import StepTelemetry

from tests.engine.engines import VOCABULARY, MakeEngine, request


class NvmlError(Exception):
    """As the package's own."""


def nvml(power: float | None) -> Any:
    """A stand-in for the package nvidia-ml-py, which needs a driver."""

    def power_usage(handle: int) -> float:
        if power is None:
            raise NvmlError
        return power

    return SimpleNamespace(
        NVMLError=NvmlError,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=50),
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=1 << 30),
        nvmlDeviceGetPowerUsage=power_usage,
        nvmlDeviceGetTemperature=lambda handle, sensor: 40,
    )


def lines() -> list[str]:
    return render().decode().splitlines()


def number(line: str) -> float:
    """The value of a series."""
    return sum(float(each.split()[-1]) for each in lines() if each.startswith(line))


def test_a_request_has_a_time_in_the_queue_and_steps_have_parts_and_rows(make_engine: MakeEngine) -> None:
    engine = make_engine(telemetry=StepTelemetry())
    metrics = Metrics("measured", engine)
    for name in ("a", "b"):
        engine.submit(request(name, prompt=4, answer=6))
    while engine.busy:
        engine.step()
    metrics.update()
    metrics.update()
    label = '{model="measured"}'
    for part in ("queue", "prefill", "decode"):
        assert number(f"outrider_verifier_{part}_seconds_count{label}") == 2
    assert number(f"outrider_verifier_step_rows_sum{label}") == number(f"outrider_verifier_rows_total{label}")
    assert number(f"outrider_verifier_step_rows_count{label}") == number(f"outrider_verifier_steps_total{label}")
    assert number(f"outrider_spec_acceptance_length_sum{label}") == 10  # each first token comes with its prompt
    assert number('outrider_verifier_prefix_tokens_total{model="measured",tier="computed"}') == 8
    assert f"outrider_verifier_preemptions_total{label} 0.0" in lines()
    parts = 'outrider_verifier_step_part_seconds_total{model="measured",part='
    assert all(number(f'{parts}"{part}"') > 0 for part in ("schedule", "forward", "sample", "commit"))


class LostDrafter(RandomDrafter):
    """Says of itself that it guesses no better than chance."""

    lost = True


@pytest.mark.parametrize(("kind", "lost"), [(RandomDrafter, 0.0), (LostDrafter, 1.0)])
def test_a_drafter_that_guesses_no_better_than_chance_is_shown(
    make_engine: MakeEngine, kind: type[RandomDrafter], lost: float
) -> None:
    drafter = kind(DrafterContext("toy", VOCABULARY, 256))
    engine = make_engine(drafters=[drafter], telemetry=StepTelemetry())
    metrics = Metrics(kind.__name__, engine)
    engine.submit(request("a", prompt=4, answer=6))
    while engine.busy:
        engine.step()
    metrics.update()
    assert f'outrider_spec_drafter_lost{{drafter="random",model="{kind.__name__}"}} {lost}' in lines()


@pytest.mark.parametrize(("power", "shown"), [(70_000.0, "70.0"), (None, "NaN")])
def test_a_gpu_shows_what_its_driver_tells_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, power: float | None, shown: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(power))
    show_gpus()
    assert 'outrider_gpu_utilization{gpu="0"} 0.5' in lines()
    assert 'outrider_gpu_memory_used_bytes{gpu="0"} 1.073741824e+09' in lines()
    assert f'outrider_gpu_power_watts{{gpu="0"}} {shown}' in lines()
    assert 'outrider_gpu_temperature_celsius{gpu="0"} 40.0' in lines()


def test_without_the_package_there_are_no_metrics_of_gpus_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    show_gpus()
