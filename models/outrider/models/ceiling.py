"""The least time of a step on a machine: it reads each weight once, and multiplies as fast as PyTorch can."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from outrider.models.config import ModelConfig

_READ, _SIDE, _TRIES = 1 << 28, 2048, 5


def weights(config: ModelConfig) -> int:
    """Weights that every row of a step is multiplied by: those of the layers and of the output layer."""
    heads, shared = config.heads * config.head_dim, config.kv_heads * config.head_dim
    layer = config.hidden_size * (2 * heads + 2 * shared + 3 * config.intermediate_size)
    return config.layers * layer + config.vocab_size * config.hidden_size


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What bounds steps: a model's weights, bytes that can be read in a second, operations that can be done in one.

    Attention, norms and activations are not counted.

    Attributes:
        weights: that a row is multiplied by.
        size: bytes of one.
        bandwidth: bytes a second.
        peak: multiplications and additions a second.
    """

    weights: int
    size: int
    bandwidth: float
    peak: float

    def __call__(self, rows: int) -> float:
        """Seconds that a step of ``rows`` rows takes at least."""
        return max(self.weights * self.size / self.bandwidth, 2 * self.weights * rows / self.peak)

    @classmethod
    def measure(cls, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> Ceiling:
        """Measures the device, with as many threads as PyTorch has; takes a second or two and 1 GiB."""
        much = torch.ones(_READ, device=device)
        bandwidth = much.nbytes / _best(much.sum, device)
        del much
        left, right = (torch.ones(_SIDE, _SIDE, dtype=dtype, device=device) for _ in range(2))
        peak = 2 * _SIDE**3 / _best(lambda: left @ right, device)
        return cls(weights(config), dtype.itemsize, bandwidth, peak)


def _best(work: Callable[[], object], device: torch.device) -> float:
    """Least seconds of a few tries."""
    found = []
    for _ in range(_TRIES):
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(time.perf_counter() - began)
    return min(found)
