"""The weights of Medusa's heads."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from outrider.kernels.linear import Linear, pack
from torch import Tensor

MOST = 16
"""Candidates a head at most."""


@dataclass(frozen=True, slots=True)
class MedusaHeads:
    """Heads of one residual block each.

    Attributes:
        blocks: from [n, hidden] to [n, heads * hidden], all heads' W1 with their biases.
        outputs: W2, [heads, vocabulary, hidden].
    """

    blocks: Linear
    outputs: Tensor

    @classmethod
    def pack(cls, blocks: Tensor, biases: Tensor | None, outputs: Tensor) -> MedusaHeads:
        """The heads of W1 [heads, hidden, hidden], b1 [heads, hidden] or None, and W2 [heads, vocabulary, hidden].

        Raises:
            ValueError: the shapes do not fit one another, or there are fewer than `MOST` tokens.
        """
        heads, tokens, hidden = outputs.shape
        fitting = biases is None or biases.shape == (heads, hidden)
        if blocks.shape != (heads, hidden, hidden) or not fitting:
            raise ValueError(
                f"blocks are {tuple(blocks.shape)} and biases {None if biases is None else tuple(biases.shape)}; for "
                f"outputs of {tuple(outputs.shape)} they must be [{heads}, {hidden}, {hidden}] and [{heads}, {hidden}]"
            )
        if tokens < MOST:
            raise ValueError(f"the vocabulary has {tokens} tokens; it must have at least {MOST}")
        bias = None if biases is None else biases.flatten()
        return cls(pack(blocks.flatten(0, 1), bias), outputs.contiguous())


def check(hidden: Tensor, heads: MedusaHeads, k: int) -> None:
    """Refuses what is no input of the op.

    Raises:
        ValueError: says what is wrong and what is allowed.
    """
    width, dtype = heads.outputs.shape[2], heads.outputs.dtype
    if hidden.dim() != 2 or hidden.shape[1] != width or not hidden.is_contiguous():
        raise ValueError(f"hidden is {tuple(hidden.shape)}; it must be a contiguous [n, {width}]")
    if hidden.dtype != dtype or hidden.device != heads.outputs.device:
        raise ValueError(
            f"hidden is {hidden.dtype} on {hidden.device}; it must be {dtype} on {heads.outputs.device}, as the heads"
        )
    if not 1 <= k <= MOST:
        raise ValueError(f"k is {k}; it must be 1 to {MOST}")


def features(hidden: Tensor, heads: MedusaHeads) -> Tensor:
    """What W1 makes of [n, hidden]: [n, heads, hidden], before the activation."""
    return heads.blocks(hidden).view(len(hidden), len(heads.outputs), heads.outputs.shape[2])


def first_of(values: Tensor, k: int) -> Tensor:
    """Places of the ``k`` largest of float32 [..., n], largest first and equal ones in order: int64 [..., k].

    The bits of a float are made to grow with it, and the place stands below them, so that no two are equal.
    """
    bits = (values + 0.0).contiguous().view(torch.int32).long()
    growing = torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    places = torch.arange(values.shape[-1], device=values.device)
    return torch.topk((growing << 32) - places, k).indices
