"""medusa_topk: the likeliest tokens of each of Medusa's heads (Cai et al. 2024, "Medusa", its first kind)."""

from __future__ import annotations

from outrider.kernels.backend import takes_triton
from outrider.kernels.medusa_topk import cpu
from outrider.kernels.medusa_topk.heads import MOST, MedusaHeads
from torch import Tensor

__all__ = ["MOST", "MedusaHeads", "medusa_topk"]


def medusa_topk(hidden: Tensor, heads: MedusaHeads, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` likeliest tokens that each head proposes behind each row.

    A head's distribution is ``softmax(W2 (h + silu(W1 h + b1)))``. On a GPU a row's bits do not depend on the others.

    Args:
        hidden: [n, hidden], contiguous, in the heads' dtype: the rows that the model's own output layer reads.
        heads: their weights, on the device of ``hidden``.
        k: candidates a head, 1 to `MOST`.

    Returns:
        int64 [n, heads, k] token ids, the likeliest first and equal ones by id, and float32 [n, heads, k] their
        log-probabilities.

    Raises:
        ValueError: a shape, a dtype, a device or ``k`` does not fit.
    """
    if takes_triton(hidden.device):
        from outrider.kernels.medusa_topk import triton

        return triton.medusa_topk(hidden, heads, k)
    return cpu.medusa_topk(hidden, heads, k)
