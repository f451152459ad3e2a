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
        flops: of dense matrix products, a second, by dtype.
        source: of the figures.
    """

    name: str
    bandwidth: float
    flops: dict[torch.dtype, float]
    source: str


def _device(name: str, terabytes: float, half: float, single: float, source: str) -> Device:
    flops = {torch.bfloat16: half * 1e12, torch.float16: half * 1e12, torch.float32: single * 1e12}
    return Device(name, terabytes * 1e12, flops, source)


DEVICES = {
    "h200": _device("H200 SXM", 4.8, 989.4, 66.9, "NVIDIA H200 Tensor Core GPU data sheet, products without sparsity"),
    "h100": _device("H100 SXM", 3.35, 989.4, 66.9, "NVIDIA H100 Tensor Core GPU data sheet, products without sparsity"),
    "a100": _device("A100 SXM 80 GB", 2.039, 312, 19.5, "NVIDIA A100 Tensor Core GPU data sheet"),
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
    multiplying = case.work.flops / device.flops[case.shape.dtype]
    return Prediction(moving, "memory") if moving >= multiplying else Prediction(multiplying, "products")
