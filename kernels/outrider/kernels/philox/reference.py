"""Philox in plain torch: 32-bit words are kept in int64, whose products wrap without losing a bit."""

from __future__ import annotations

import torch
from outrider.kernels import elementary
from outrider.kernels.elementary.constants import HALF_WORD, LARGEST_UNIFORM, WORD_UNIT
from torch import Tensor

WORD = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def philox_4x32(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> list[Tensor]:
    """Four words of Philox 4x32-10 for each counter.

    Args:
        counter: four int64 tensors of 32-bit words that broadcast together.
        key: two int64 tensors of 32-bit words that broadcast with them.

    Returns:
        Four int64 tensors of 32-bit words, of the broadcast shape.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        product0, product1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        high0, high1 = (product0 >> 32) & WORD, (product1 >> 32) & WORD
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, product1 & WORD, high0 ^ c3 ^ k1, product0 & WORD
        k0, k1 = (k0 + WEYL[0]) & WORD, (k1 + WEYL[1]) & WORD
    return [c0, c1, c2, c3]


def seeds_of(seed: int, positions: Tensor) -> Tensor:
    """``seed``, 0 to 2**64 - 1, for each position: int64 [n] with the same 64 bits."""
    return torch.full_like(positions, seed - (seed >> 63 << 64))


def log_exponentials(seeds: Tensor, positions: Tensor, vocabulary: int) -> Tensor:
    """See `outrider.kernels.philox.log_exponentials`; ``seeds`` and ``positions`` int64 [n]."""
    lanes = torch.arange((vocabulary + 3) // 4, device=positions.device)
    zero = torch.zeros(1, 1, dtype=torch.int64, device=positions.device)
    key = ((seeds & WORD)[:, None], ((seeds >> 32) & WORD)[:, None])
    words = philox_4x32((lanes[None, :], positions[:, None], zero, zero), key)
    bits = torch.stack(words, dim=-1).flatten(1)[:, :vocabulary]
    return log_exponential(bits.to(torch.float32))


def log_exponential(word: Tensor) -> Tensor:
    """The logarithm of the variate of each word of 32 bits, given as the nearest float32; overwrites ``word``."""
    uniform = word.add_(HALF_WORD).mul_(WORD_UNIT).clamp_(max=LARGEST_UNIFORM)
    return elementary.log(elementary.log_complement(uniform).neg_())
