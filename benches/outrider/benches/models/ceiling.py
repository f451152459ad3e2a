"""A lower bound on the time of a step: each weight is read once, and matmuls run at PyTorch's best speed.

That is the speed of float32 on a CPU without instructions for matmuls in the weights' dtype.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from outrider.engine.models.config import ModelConfig
from torch.nn.functional import linear

_READ, _TRIES = 1 << 28, 5
_SIDES = (256, 512, 1024, 2048, 4096)
_BRIEF_S = 0.05
"""Seconds of a matmul behind which there is no larger one."""


def weights(config: ModelConfig) -> int:
    """Number of weights that multiply every row of a step: those of the layers and the output layer."""
    return round(config.layers * config.layer_weights) + config.vocab_size * config.hidden_size


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The bounds of steps: a model's weights, and a machine's bandwidth and speed of matmuls.

    Attention, norms and activations are not counted.

    Attributes:
        weights: number of weights that multiply a row.
        size: bytes of a weight.
        bandwidth: bytes a second.
        peak: multiplications and additions a second.
    """

    weights: int
    size: int
    bandwidth: float
    peak: float

    def __call__(self, rows: int) -> float:
        """Least seconds of a step of ``rows`` rows."""
        return max(self.weights * self.size / self.bandwidth, 2 * self.weights * rows / self.peak)

    @classmethod
    def measure(cls, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> Ceiling:
        """Measures the device with all of PyTorch's threads; takes a few seconds, on slow CPUs too, and 1 GiB."""
        much = torch.ones(_READ, device=device)
        bandwidth = much.nbytes / _best(much.sum, device)
        del much
        peak = max(_peak(kind, device) for kind in {dtype, torch.float32})
        return cls(weights(config), dtype.itemsize, bandwidth, peak)


def _peak(dtype: torch.dtype, device: torch.device) -> float:
    """Most multiplications and additions a second, over square matmuls that grow for as long as they are brief."""
    peak = 0.0
    for side in _SIDES:
        left, right = (torch.ones(side, side, dtype=dtype, device=device) for _ in range(2))
        seconds = _best(partial(linear, left, right), device)
        peak = max(peak, 2 * side**3 / seconds)
        if seconds > _BRIEF_S:
            break
    return peak


def _best(work: Callable[[], object], device: torch.device) -> float:
    """Least seconds of a few tries."""
    times = []
    for _ in range(_TRIES):
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    return min(times)
