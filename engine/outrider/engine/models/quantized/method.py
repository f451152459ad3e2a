"""What the readers of all formats share: fields with few allowed values, and quants in 32-bit words."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from outrider.engine.models.checkpoint import Checkpoint
from outrider.engine.models.fields import Fields
from outrider.native.quantized import QuantFormat, QuantizedWeight, Quants
from torch import Tensor

WORD_BITS = 32
GROUP_UNIT = 32
"""What divides the input features of a group."""
SCALES = ("F32", "BF16", "F16")
"""Dtypes of scales in a file."""


class Method(Protocol):
    """Reads the weights of one ``quant_method``."""

    @property
    def floats(self) -> bool:
        """Whether quants are eight-bit floats."""
        ...

    def is_quantized(self, source: Checkpoint, module: str) -> bool:
        """Whether the file holds quants for the weight of ``module``."""
        ...

    def weight(self, source: Checkpoint, module: str, shape: tuple[int, int]) -> Tensor | QuantizedWeight:
        """The weight of a quantized ``module``; `ModelError` if a tensor is missing or does not fit ``shape``."""
        ...


@dataclass(frozen=True, slots=True)
class StoredQuants:
    """A `QuantizedWeight` whose quants are unpacked from the file's words when they are asked for.

    Attributes:
        read: quants of the output features int64 [rows].
    """

    format: QuantFormat
    shape: tuple[int, int]
    read: Callable[[Tensor], Quants]

    def quants(self, rows: Tensor) -> Quants:
        """See `QuantizedWeight`."""
        return self.read(rows)


def one_of(fields: Fields, name: str, allowed: Sequence[Any], default: Any = None) -> Any:
    """The value of a field, which must be one of ``allowed``; an absent field has the default.

    Raises:
        ModelError: the value is none of ``allowed``.
    """
    value = fields.values.get(name)
    value = default if value is None else value
    if not any(type(value) is type(each) and value == each for each in allowed):
        names = [json.dumps(each) for each in allowed if each is not None]
        raise fields.wrong(name, " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names))
    return value


def group_size(fields: Fields, name: str = "group_size") -> int:
    """Input features of a group; -1 is all of them."""
    value = fields.values.get(name)
    if type(value) is not int or (value != -1 and (value < GROUP_UNIT or value % GROUP_UNIT)):
        raise fields.wrong(name, f"a multiple of {GROUP_UNIT}, or -1 for all input features")
    return value


def quants_at(words: Tensor, places: Tensor, bits: int, order: Sequence[int] | None = None) -> Tensor:
    """The quants at ``places`` of lines of words.

    Args:
        words: int32 [lines, words].
        places: int64 [n] of quants in a line.
        bits: of a quant.
        order: the place of each quant in its word, counted from the lowest bits; None is one after the other.

    Returns:
        uint8 [lines, n].
    """
    in_word = WORD_BITS // bits
    shifts = torch.tensor(range(in_word) if order is None else order, dtype=torch.int32) * bits
    quants: Tensor = (words[:, places // in_word] >> shifts[places % in_word]) & (2**bits - 1)
    return quants.to(torch.uint8)


def with_zeros(quants: Tensor, scales: Tensor, zeros: Tensor | None) -> Quants:
    """Quants and the minima of zero points [rows, groups], like the scales; None where the format has one for all."""
    scales = scales.float().contiguous()
    return Quants(quants.contiguous(), scales, None if zeros is None else scales * zeros.float())
