"""Parameters of a fused draw."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

GREEDY_BELOW = 1e-6
"""Temperatures below this count as 0."""

BROKEN_FROM = 1e30
"""Logits from this value on count as infinite; smaller ones stay finite when divided by any temperature."""


@dataclass(frozen=True, slots=True, eq=False)
class Penalties:
    """Changes to single logits: ``(logit / factor if logit > 0 else logit * factor) + bias``.

    The lists of the rows lie one behind the other.

    Attributes:
        offsets: int32 [n + 1]; entries ``offsets[i]`` to ``offsets[i + 1] - 1`` belong to row i.
        tokens: int32 [entries], each at most once in a row.
        factors: float32 [entries], above 0; 1 changes nothing.
        biases: float32 [entries].
    """

    offsets: Tensor
    tokens: Tensor
    factors: Tensor
    biases: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """How each row draws. A field is None where no row needs it, and then costs nothing.

    Attributes:
        seeds: int64 [n], whose 64 bits are taken without a sign.
        positions: int64 [n], absolute position of the token to draw, 0 to 2**32 - 1.
        temperatures: float32 [n]; 0 takes the likeliest token, and anything else divides the logits.
        top_k: int32 [n], as in `outrider.kernels.race_sample.Truncation`; 0 keeps all.
        top_p: float32 [n], likewise; 1 keeps all.
        min_p: float32 [n], likewise; 0 keeps all.
        penalties: applied before the temperature.
        allowed: int32 [n, ceil(V / 32)], bit ``v % 32`` of word ``v // 32`` is 1 where a grammar allows token v.
    """

    seeds: Tensor
    positions: Tensor
    temperatures: Tensor
    top_k: Tensor | None = None
    top_p: Tensor | None = None
    min_p: Tensor | None = None
    penalties: Penalties | None = None
    allowed: Tensor | None = None

    @property
    def truncates(self) -> bool:
        """Whether some row may drop tokens."""
        return not (self.top_k is None and self.top_p is None and self.min_p is None)

    def check(self, logits: Tensor) -> None:
        """`ValueError` where this does not fit ``logits``; checks shapes, dtypes and devices only."""
        if logits.dim() != 2 or not logits.is_floating_point() or logits.shape[1] < 1 or logits.stride(1) != 1:
            raise ValueError(f"logits are {logits.dtype} {tuple(logits.shape)}; they must be floating [n, V], V >= 1")
        rows, vocabulary = logits.shape
        for name, dtype in _COLUMNS.items():
            _check(name, getattr(self, name), dtype, (rows,), logits.device)
        _check("allowed", self.allowed, torch.int32, (rows, -(-vocabulary // 32)), logits.device)
        if self.penalties is not None:
            entries = (len(self.penalties.tokens),)
            _check("offsets", self.penalties.offsets, torch.int32, (rows + 1,), logits.device)
            _check("tokens", self.penalties.tokens, torch.int32, entries, logits.device)
            _check("factors", self.penalties.factors, torch.float32, entries, logits.device)
            _check("biases", self.penalties.biases, torch.float32, entries, logits.device)


_COLUMNS = {
    "seeds": torch.int64,
    "positions": torch.int64,
    "temperatures": torch.float32,
    "top_k": torch.int32,
    "top_p": torch.float32,
    "min_p": torch.float32,
}


def _check(name: str, tensor: Tensor | None, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device) -> None:
    if tensor is None:
        return
    if tensor.shape != shape or tensor.dtype != dtype or tensor.device != device or not tensor.is_contiguous():
        raise ValueError(
            f"{name} are {tensor.dtype} {tuple(tensor.shape)} on {tensor.device}; they must be contiguous {dtype} "
            f"{shape} on {device}"
        )
