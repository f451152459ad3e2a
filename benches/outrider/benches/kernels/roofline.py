"""The least time of an op on a device (Williams, Waterman, Patterson 2009, "Roofline")."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from outrider.benches.kernels.cases import Case


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU's limits.

    Attributes:
        name: of the GPU.
        bandwidth: of its memory, bytes a second.
        flops: of dense matmuls, a second, by dtype of the factors.
        source: document with the figures.
    """

    name: str
    bandwidth: float
    flops: dict[torch.dtype, float]
    source: str


def _device(name: str, terabytes: float, source: str, *, eight: float, sixteen: float, single: float) -> Device:
    teraflops = {
        torch.float8_e4m3fn: eight,
        torch.bfloat16: sixteen,
        torch.float16: sixteen,
        torch.float32: single,
    }
    flops = {dtype: rate * 1e12 for dtype, rate in teraflops.items() if rate}
    return Device(name, terabytes * 1e12, flops, f"NVIDIA {source} Tensor Core GPU data sheet, without sparsity")


DEVICES = {
    "h200": _device("H200 SXM", 4.8, "H200", eight=1978.9, sixteen=989.4, single=66.9),
    "h100": _device("H100 SXM", 3.35, "H100", eight=1978.9, sixteen=989.4, single=66.9),
    "a100": _device("A100 SXM 80 GB", 2.039, "A100", eight=0, sixteen=312, single=19.5),
}
"""Devices by the name on command lines."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The least time of a case on a device.

    Attributes:
        seconds: the least time.
        bound: ``memory`` or ``matmuls``, whichever takes longer.
    """

    seconds: float
    bound: str


def predict(case: Case, device: Device) -> Prediction:
    """The longer of the times to move the case's bytes and to compute its matmuls."""
    moving = case.work.moved / device.bandwidth
    multiplying = case.work.flops / device.flops[case.work.factors]
    return Prediction(moving, "memory") if moving >= multiplying else Prediction(multiplying, "matmuls")
