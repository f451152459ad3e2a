"""What a fused draw is told, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MOST_TOP = 20
"""Tokens whose log-probabilities a draw tells, beside the drawn one's."""

GREEDY_BELOW = 1e-6
"""Temperatures below count as 0."""

BROKEN_FROM = 1e30
"""Logits from here on count as infinite; over the least temperature, what is below stays finite."""


@dataclass(frozen=True, slots=True, eq=False)
class Penalties:
    """Changes to single logits: ``(logit / factor if logit > 0 else logit * factor) + bias``.

    Rows have lists of their own, one behind the other.

    Attributes:
        offsets: int32 [n + 1]; entries ``offsets[i]`` to ``offsets[i + 1] - 1`` are of row i.
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
    """How each row draws. What is None is not wanted by any row, and costs nothing.

    Attributes:
        seeds: int64 [n], whose 64 bits are taken without a sign.
        positions: int64 [n], absolute position of the token to draw, 0 to 2**32 - 1.
        temperatures: float32 [n]; 0 takes the likeliest token, and anything else divides the logits.
        top_k: int32 [n], as in `outrider.kernels.race_sample.Truncation`; 0 keeps all.
        top_p: float32 [n], likewise; 1 keeps all.
        min_p: float32 [n], likewise; 0 keeps all.
        penalties: applied before the temperature.
        allowed: int32 [n, ceil(V / 32)], bit ``v % 32`` of word ``v // 32`` is 1 where a grammar allows token v.
        top: tell log-probabilities: of the drawn token, and of this many likeliest, 0 to 20.
    """

    seeds: Tensor
    positions: Tensor
    temperatures: Tensor
    top_k: Tensor | None = None
    top_p: Tensor | None = None
    min_p: Tensor | None = None
    penalties: Penalties | None = None
    allowed: Tensor | None = None
    top: int | None = None

    @property
    def truncates(self) -> bool:
        """Whether some row may drop tokens."""
        return not (self.top_k is None and self.top_p is None and self.min_p is None)

    def check(self, logits: Tensor) -> None:
        """ValueError where this does not fit ``logits``; only shapes, dtypes and devices are looked at."""
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
        if self.top is not None and not 0 <= self.top <= MOST_TOP:
            raise ValueError(f"top is {self.top}; it must be 0 to {MOST_TOP}")


_COLUMNS = {
    "seeds": torch.int64,
    "positions": torch.int64,
    "temperatures": torch.float32,
    "top_k": torch.int32,
    "top_p": torch.float32,
    "min_p": torch.float32,
}


def _check(name: str, given: Tensor | None, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device) -> None:
    if given is None:
        return
    if given.shape != shape or given.dtype != dtype or given.device != device or not given.is_contiguous():
        raise ValueError(
            f"{name} are {given.dtype} {tuple(given.shape)} on {given.device}; they must be contiguous {dtype} "
            f"{shape} on {device}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """What the rows drew.

    Attributes:
        tokens: int32 [n]; -1 where nothing can be drawn: a logit is NaN or 1e30 or more, before or after penalties,
            or every token is impossible or forbidden.
        logprobs: float32 [n], of the tokens under the model's own distribution: the softmax of the logits as they
            came, before penalties, mask, temperature and truncation. Minus infinity for -1.
        top_tokens: int32 [n, top], the likeliest under that distribution, best first, the lowest id first on a tie;
            -1 where there are no more, and where a logit is NaN or 1e30 or more.
        top_logprobs: float32 [n, top]; minus infinity for -1.
    """

    tokens: Tensor
    logprobs: Tensor | None = None
    top_tokens: Tensor | None = None
    top_logprobs: Tensor | None = None
