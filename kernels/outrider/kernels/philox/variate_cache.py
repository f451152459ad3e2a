"""A cache of recent variates: all rows that draw at one position, in any step, use the same ones."""

from __future__ import annotations

import threading
from collections import OrderedDict

import torch
from outrider.kernels.philox import log_exponentials
from torch import Tensor

_BLOCK = 1 << 16
"""Variates that are computed together, over consecutive positions: fewer take as long."""

_Key = tuple[int, int, int, torch.device]


class VariateCache:
    """Recent blocks of consecutive positions' variates, of all seeds; thread-safe.

    Args:
        most: variates that the cache keeps.
    """

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._blocks: OrderedDict[_Key, tuple[Tensor, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def row(self, seed: int, position: int, vocabulary: int, device: torch.device) -> Tensor:
        """Float32 [vocabulary] variates of `outrider.kernels.philox.log_exponentials`; not to be written to."""
        size = max(1, min(16, _BLOCK // vocabulary))
        first, place = position - position % size, position % size
        key = (seed, first, vocabulary, device)
        with self._lock:
            if (block := self._blocks.get(key)) is None:
                block = self._blocks[key] = _block(seed, first, size, vocabulary, device)
                self._size += size * vocabulary
                self._evict()
            else:
                self._blocks.move_to_end(key)
        return block[place]

    def _evict(self) -> None:
        while self._size > self._most and len(self._blocks) > 1:
            _, old = self._blocks.popitem(last=False)
            self._size -= len(old) * len(old[0])


def _block(seed: int, first: int, size: int, vocabulary: int, device: torch.device) -> tuple[Tensor, ...]:
    positions = torch.arange(first, first + size, device=device)
    return log_exponentials(seed, positions, vocabulary).unbind()


_cache = VariateCache(1 << 24)


def cached_variates(seed: int, position: int, vocabulary: int, device: torch.device) -> Tensor:
    """Logarithms of the exponential variates of one position, float32 [vocabulary]; not to be written to.

    A process keeps 64 MiB of the latest ones.

    Args:
        seed: 0 to 2**64 - 1.
        position: 0 to 2**32 - 1.
        vocabulary: entries.
        device: of the result.
    """
    return _cache.row(seed, position, vocabulary, device)
