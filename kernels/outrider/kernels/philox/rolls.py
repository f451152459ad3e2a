"""Variates that were rolled lately: every row that draws at a position, in whatever step, takes the same ones."""

from __future__ import annotations

import threading
from collections import OrderedDict

import torch
from outrider.kernels.philox import log_exponentials
from torch import Tensor

_TOGETHER = 1 << 16
"""Variates that are rolled together, over consecutive positions: fewer cost as much time."""

_Key = tuple[int, int, int, torch.device]


class Rolls:
    """The latest blocks of consecutive positions' variates, over all seeds; thread-safe.

    Args:
        most: variates that are kept.
    """

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._blocks: OrderedDict[_Key, tuple[Tensor, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def row(self, seed: int, position: int, vocabulary: int, device: torch.device) -> Tensor:
        """Float32 [vocabulary], as of `outrider.kernels.philox.log_exponentials`; not to be written to."""
        size = max(1, min(16, _TOGETHER // vocabulary))
        first, place = position - position % size, position % size
        key = (seed, first, vocabulary, device)
        with self._lock:
            if (block := self._blocks.get(key)) is None:
                block = self._blocks[key] = _roll(seed, first, size, vocabulary, device)
                self._held += size * vocabulary
                self._drop()
            else:
                self._blocks.move_to_end(key)
        return block[place]

    def _drop(self) -> None:
        while self._held > self._most and len(self._blocks) > 1:
            _, old = self._blocks.popitem(last=False)
            self._held -= len(old) * len(old[0])


def _roll(seed: int, first: int, size: int, vocabulary: int, device: torch.device) -> tuple[Tensor, ...]:
    positions = torch.arange(first, first + size, device=device)
    return log_exponentials(seed, positions, vocabulary).unbind()


_rolls = Rolls(1 << 24)


def rolled(seed: int, position: int, vocabulary: int, device: torch.device) -> Tensor:
    """Logarithms of the exponential variates of one position, float32 [vocabulary]; not to be written to.

    They are kept for those who ask again: 64 MiB of the latest in a process.

    Args:
        seed: 0 to 2**64 - 1.
        position: 0 to 2**32 - 1.
        vocabulary: entries.
        device: where they are wanted.
    """
    return _rolls.row(seed, position, vocabulary, device)
