"""Philox in plain torch: 32-bit words are kept in int64, whose products wrap without losing a bit."""

from __future__ import annotations

import torch
from torch import Tensor

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


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
    for _ in range(_ROUNDS):
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        high0, high1 = (product0 >> 32) & _WORD, (product1 >> 32) & _WORD
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, product1 & _WORD, high0 ^ c3 ^ k1, product0 & _WORD
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    return [c0, c1, c2, c3]


def log_exponentials(seed: int, positions: Tensor, vocabulary: int) -> Tensor:
    """Logarithms of the exponential variates of a request at some positions.

    Word ``v % 4`` of the counter (v // 4, position, 0, 0) under the key ``seed`` gives ``u = (word + 1/2) / 2**32``,
    and the variate of entry v is ``-log1p(-u)``. u is kept below 1, so that every variate is finite and positive.

    Args:
        seed: 0 to 2**64 - 1.
        positions: int64 [n], absolute positions of the tokens to draw, below 2**32.
        vocabulary: entries V.

    Returns:
        float32 [n, V].
    """
    lanes = torch.arange((vocabulary + 3) // 4, device=positions.device)
    zero = torch.zeros(1, 1, dtype=torch.int64, device=positions.device)
    key = (zero + (seed & _WORD), zero + (seed >> 32))
    words = philox_4x32((lanes[None, :], positions[:, None], zero, zero), key)
    bits = torch.stack(words, dim=-1).flatten(1)[:, :vocabulary]
    uniform = bits.to(torch.float32).add_(0.5).mul_(2.0**-32).clamp_(max=1 - 2.0**-24)
    return uniform.neg_().log1p_().neg_().log_()
