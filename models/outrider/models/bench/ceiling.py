"""A lower bound on the time of a step: each weight is read once, and products run at PyTorch's best speed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from outrider.models.config import ModelConfig

_READ, _SIDE, _TRIES = 1 << 28, 2048, 5


def weights(config: ModelConfig) -> int:
    """Number of weights that multiply every row of a step: those of the layers and the output layer."""
    return round(config.layers * config.layer_weights) + config.vocab_size * config.hidden_size


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The bounds of steps: a model's weights, and a machine's bandwidth and speed of products.

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
        """Measures the device with all of PyTorch's threads; takes a second or two and 1 GiB."""
        much = torch.ones(_READ, device=device)
        bandwidth = much.nbytes / _best(much.sum, device)
        del much
        left, right = (torch.ones(_SIDE, _SIDE, dtype=dtype, device=device) for _ in range(2))
        peak = 2 * _SIDE**3 / _best(lambda: left @ right, device)
        return cls(weights(config), dtype.itemsize, bandwidth, peak)


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
