"""Metrics of GPUs, read by NVML at each scrape, where the package nvidia-ml-py is installed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from math import nan
from typing import Any

from outrider.mesh.telemetry import gauge, get_logger

_GPU = ["gpu"]
_UTILIZATION = gauge("gpu_utilization", "Share of the last moments in which the GPU ran kernels of any process.", _GPU)
_MEMORY = gauge("gpu_memory_used_bytes", "Memory of the GPU that is in use, by any process.", _GPU)
_POWER = gauge("gpu_power_watts", "Power that the GPU draws.", _GPU)
_TEMPERATURE = gauge("gpu_temperature_celsius", "Temperature of the GPU.", _GPU)

_log = get_logger("gpu")


def show_gpus() -> None:
    """Has `/metrics` show all GPUs of the driver, by their index there; without package or driver, it shows none."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception as error:  # the package has errors of its own
        _log.info("no metrics of GPUs: NVML cannot be used", why=type(error).__name__)
        return
    for index in range(nvml.nvmlDeviceGetCount()):
        _show(nvml, index)


def _show(nvml: Any, index: int) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    readings: dict[Any, Callable[[], float]] = {
        _UTILIZATION: lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
        _MEMORY: lambda: float(nvml.nvmlDeviceGetMemoryInfo(handle).used),
        _POWER: lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        _TEMPERATURE: lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
    }
    for metric, reading in readings.items():
        metric.labels(str(index)).set_function(partial(_read, reading, nvml.NVMLError))


def _read(reading: Callable[[], float], error: type[Exception]) -> float:
    """The reading, or not a number where the GPU does not give it."""
    try:
        return reading()
    except error:
        return nan
