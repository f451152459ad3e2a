"""GPTQ (Frantar et al. 2022) as AutoGPTQ and GPTQModel write it.

``qweight`` int32 [in_features * bits / 32, out_features] has consecutive input features in a word, the first in the
lowest bits. ``qzeros`` int32 [groups, out_features * bits / 32] has consecutive output features in a word: zero points,
less one unless ``checkpoint_format`` is ``gptq_v2``. ``scales`` is [groups, out_features], ``g_idx`` int32
[in_features] the group of each input feature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from outrider.engine.errors import ModelError
from outrider.engine.models.checkpoint import Checkpoint
from outrider.engine.models.fields import Fields
from outrider.engine.models.quantized.method import (
    SCALES,
    WORD_BITS,
    StoredQuants,
    group_size,
    one_of,
    quants_at,
    with_zeros,
)
from outrider.native.quantized import QuantFormat, Quants
from torch import Tensor

_FORMATS = ("gptq", "gptq_v2")


@dataclass(frozen=True, slots=True)
class Gptq:
    """Four or eight bits, with a scale and, unless symmetric, a zero point a group.

    Attributes:
        bits: of a quant.
        group: input features of a group; -1 is all of them.
        symmetric: whether the zero point is half the range everywhere. Files then hold it with or without the one less.
        less: what zero points are stored less.
        reordered: whether ``g_idx`` must be in the file.
    """

    bits: int
    group: int
    symmetric: bool
    less: int
    reordered: bool

    floats: ClassVar[bool] = False

    @classmethod
    def parse(cls, fields: Fields) -> Gptq:
        """The method of a ``quantization_config``; `ModelError` if it is not supported."""
        bits = one_of(fields, "bits", (4, 8))
        one_of(fields, "is_marlin_format", (False,), False)
        one_of(fields, "pack_dtype", ("int32",), "int32")
        _only_exceptions(fields)
        names = [name for name in ("checkpoint_format", "format") if fields.values.get(name) is not None]
        formats = {one_of(fields, name, _FORMATS) for name in names}
        reordered, symmetric = fields.flag("desc_act", False), fields.flag("sym", True)
        return cls(bits, group_size(fields), symmetric, 0 if "gptq_v2" in formats else 1, reordered)

    def is_quantized(self, source: Checkpoint, module: str) -> bool:
        """See `Method`."""
        return source.has(f"{module}.qweight")

    def weight(self, source: Checkpoint, module: str, shape: tuple[int, int]) -> StoredQuants:
        """See `Method`."""
        (out, inner), bits, in_word = shape, self.bits, WORD_BITS // self.bits
        group = inner if self.group == -1 else self.group
        if out % in_word or inner % in_word or inner % group:
            raise ModelError(
                f"{module} has {out} output and {inner} input features; GPTQ in {bits} bits needs multiples of "
                f"{in_word} of both, and of {group} input features"
            )
        words = source.take_stored(f"{module}.qweight", (inner // in_word, out), ("I32",))
        zeros = source.take_stored(f"{module}.qzeros", (inner // group, out // in_word), ("I32",))
        scales = source.take_stored(f"{module}.scales", (inner // group, out), SCALES)
        self._check_order(source, module, inner, group)
        places, middle = torch.arange(inner), 2 ** (bits - 1)
        if self.symmetric:
            self._check_middle(quants_at(zeros, torch.arange(out), bits), module, middle)

        def read(rows: Tensor) -> Quants:
            quants = quants_at(words[:, rows].T, places, bits)
            points = None if self.symmetric else quants_at(zeros, rows, bits).T.int() + self.less
            return with_zeros(quants, scales[:, rows].T, points)

        form = QuantFormat(bits, group, middle) if self.symmetric else QuantFormat(bits, group, has_minima=True)
        return StoredQuants(form, shape, read)

    def _check_order(self, source: Checkpoint, module: str, inner: int, group: int) -> None:
        name = f"{module}.g_idx"
        if not self.reordered and not source.has(name):
            return
        order = source.take_stored(name, (inner,), ("I32",))
        if not torch.equal(order.long(), torch.arange(inner) // group):
            raise ModelError(
                f"{name} assigns input features to groups in the order of their activations (desc_act); "
                "groups must be of consecutive input features"
            )

    def _check_middle(self, zeros: Tensor, module: str, middle: int) -> None:
        if not ((zeros == middle - 1).all() or (zeros == middle).all()):
            raise ModelError(
                f"{module}.qzeros has several zero points; where sym is true all must be {middle}, stored as it is or "
                "less one"
            )


def _only_exceptions(fields: Fields) -> None:
    """Refuses settings of single modules; keys that begin with ``-:`` name modules that are not quantized."""
    dynamic = fields.within("dynamic")
    if dynamic is not None and not all(key.startswith("-:") for key in dynamic.values):
        raise fields.wrong("dynamic", 'absent, or have keys that begin with "-:" alone')
