"""How one request draws its tokens, and the dice that its seed fixes."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from outrider.kernels.philox import log_exponentials
from outrider.kernels.race_sample import Truncation, truncate
from torch import Tensor

_BLOCK = 16


@dataclass(frozen=True, slots=True)
class Sampling:
    """Parameters of a request's draws.

    Attributes:
        temperature: 0 takes the likeliest token; above 0 divides the logits.
        truncation: what is dropped after the temperature.
        seed: 0 to 2**64 - 1; fixes the dice.
    """

    temperature: float = 0.0
    truncation: Truncation = field(default_factory=Truncation)
    seed: int = 0

    @property
    def greedy(self) -> bool:
        """Whether no dice are rolled."""
        return self.temperature <= 0.0

    def shape(self, logits: Tensor) -> Tensor:
        """Float32 logits [n, V] after temperature and truncation; as they are where greedy."""
        if self.greedy:
            return logits
        return truncate(logits / self.temperature, self.truncation)


class Dice:
    """A request's log-exponential variates by position, drawn a block of positions at a time."""

    def __init__(self, seed: int, vocabulary: int, device: torch.device | str = "cpu") -> None:
        self._seed, self._vocabulary, self._device = seed, vocabulary, device
        self._blocks: dict[int, Tensor] = {}

    def at(self, position: int) -> Tensor:
        """Float32 [V] for the token at absolute ``position``."""
        block = position // _BLOCK
        if block not in self._blocks:
            self._roll(block)
        return self._blocks[block][position % _BLOCK]

    def _roll(self, block: int) -> None:
        positions = torch.arange(block * _BLOCK, (block + 1) * _BLOCK, device=self._device)
        self._blocks[block] = log_exponentials(self._seed, positions, self._vocabulary)
        for old in [b for b in self._blocks if abs(b - block) > 3]:
            del self._blocks[old]
