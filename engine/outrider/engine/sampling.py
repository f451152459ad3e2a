"""Sampling parameters of a request, and the dice that its seed fixes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import torch
from numpy.typing import DTypeLike
from outrider.kernels.philox.variate_cache import cached_variates
from outrider.kernels.race_sample import Draws, Penalties, Truncation, truncate
from outrider.native.ranking import Drawing
from torch import Tensor

_COLD = 1e-5
"""Temperature up to which the likeliest token is taken: the division would overflow."""
_MOST_SEED = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Sampling:
    """Parameters of a request's draws.

    Attributes:
        temperature: 0 takes the likeliest token; above 0 divides the logits.
        truncation: tokens to drop after the temperature.
        seed: 0 to 2**64 - 1; fixes the dice.
    """

    temperature: float
    truncation: Truncation = field(default_factory=Truncation)
    seed: int = 0

    @classmethod
    def of(cls, temperature: float, top_k: int, top_p: float, min_p: float, seed: int) -> Self:
        """What the parameters of those names in `SamplingParams` mean for draws; a ``seed`` may be negative."""
        cold = temperature <= _COLD
        return cls(0.0 if cold else temperature, Truncation(top_k, top_p, min_p), seed & _MOST_SEED)

    @property
    def greedy(self) -> bool:
        """Whether the request takes the likeliest tokens, without dice."""
        return self.temperature <= 0.0

    @property
    def drawing(self) -> Drawing:
        """These parameters for compiled code."""
        cut = self.truncation
        return Drawing(self.seed, 0.0 if self.greedy else self.temperature, cut.top_k, cut.top_p, cut.min_p)

    def shape(self, logits: Tensor) -> Tensor:
        """Float32 logits [n, V] after temperature and truncation; unchanged for a greedy request."""
        if self.greedy:
            return logits
        return truncate(logits / self.temperature, self.truncation)


class Dice:
    """A request's log-exponential variates by position.

    Attributes:
        vocabulary: number of ids.
    """

    def __init__(self, seed: int, vocabulary: int, device: torch.device | str = "cpu") -> None:
        self._seed, self.vocabulary, self._device = seed, vocabulary, torch.device(device)

    def at(self, position: int) -> Tensor:
        """Float32 [V] for the token at absolute ``position``; read-only."""
        return cached_variates(self._seed, position, self.vocabulary, self._device)


def draws(
    requests: Sequence[tuple[Sampling, Sequence[int]]],
    device: torch.device | str = "cpu",
    penalties: Penalties | None = None,
    allowed: Tensor | None = None,
) -> Draws:
    """Parameters of the draws of some requests' rows, request after request.

    Args:
        requests: parameters of each request, and the absolute positions of its rows' draws.
        device: device of the logits.
        penalties: see `Draws`.
        allowed: see `Draws`.
    """
    samplings, counts = [sampling for sampling, _ in requests], [len(positions) for _, positions in requests]
    cuts = [sampling.truncation for sampling in samplings]

    def column(values: Sequence[float], dtype: DTypeLike) -> Tensor:
        row = np.array(values, dtype=dtype)
        return torch.from_numpy(row if len(row) == rows else row.repeat(counts)).to(device)

    rows = sum(counts)
    return Draws(
        column([sampling.seed for sampling in samplings], np.uint64).view(torch.int64),
        column([position for _, behind in requests for position in behind], np.int64),
        column([sampling.temperature for sampling in samplings], np.float32),
        column([cut.top_k for cut in cuts], np.int32) if any(cut.top_k for cut in cuts) else None,
        column([cut.top_p for cut in cuts], np.float32) if any(cut.top_p < 1 for cut in cuts) else None,
        column([cut.min_p for cut in cuts], np.float32) if any(cut.min_p > 0 for cut in cuts) else None,
        penalties,
        allowed,
    )
