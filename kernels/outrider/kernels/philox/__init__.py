"""philox: counter-based random numbers, and the exponential variates of the race rule.

Philox 4x32-10 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"). A number is a
function of (seed, position, vocabulary entry) and of nothing else, so any process on any machine can compute it again.
"""

from __future__ import annotations

from outrider.kernels.backend import takes_triton
from outrider.kernels.philox import cpu, reference
from outrider.kernels.philox.reference import philox_4x32
from torch import Tensor

__all__ = ["log_exponentials", "philox_4x32"]


def log_exponentials(seed: int | Tensor, positions: Tensor, vocabulary: int) -> Tensor:
    """Logarithms of the exponential variates of some positions: the same bits on every device.

    Word ``v % 4`` of the counter (v // 4, position, 0, 0) under the key ``seed`` gives ``u = (word + 1/2) / 2**32``,
    and the variate of entry v is ``-log1p(-u)``. u is kept below 1, so that every variate is finite and positive.
    Roundings and logarithms are those of `outrider.kernels.elementary`.

    Args:
        seed: one for all positions, 0 to 2**64 - 1; or int64 [n], one per position, whose 64 bits are read as unsigned.
        positions: int64 [n], absolute positions of the tokens to draw, 0 to 2**32 - 1.
        vocabulary: entries V.

    Returns:
        float32 [n, V], from -22.9 to 2.9.
    """
    seeds = seed if isinstance(seed, Tensor) else reference.seeds_of(seed, positions)
    if takes_triton(positions.device):
        from outrider.kernels.philox import triton

        return triton.log_exponentials(seeds, positions, vocabulary)
    if positions.device.type == "cpu":
        return cpu.log_exponentials(seeds, positions, vocabulary)
    return reference.log_exponentials(seeds, positions, vocabulary)
