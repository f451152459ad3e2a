"""How quick an op could be (Williams, Waterman, Patterson 2009, "Roofline")."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from outrider.kernels.bench.cases import Case


@dataclass(frozen=True, slots=True)
class Device:
    """What a GPU can do at most.

    Attributes:
        name: of it.
        bandwidth: of its memory, bytes a second.
        flops: of dense matrix products, a second, by dtype of what is multiplied.
        source: of the figures.
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
"""By the name they are asked for."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The least time of a case on a device.

    Attributes:
        seconds: it takes at least.
        bound: ``memory`` or ``products``, whichever takes that long.
    """

    seconds: float
    bound: str


def predict(case: Case, device: Device) -> Prediction:
    """The longer of the times in which the case's bytes are moved and its products are done."""
    moving = case.work.moved / device.bandwidth
    multiplying = case.work.flops / device.flops[case.work.factors]
    return Prediction(moving, "memory") if moving >= multiplying else Prediction(multiplying, "products")
