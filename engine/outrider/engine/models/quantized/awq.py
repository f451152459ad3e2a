"""AWQ (Lin et al. 2023) as AutoAWQ's ``gemm`` version writes it.

``qweight`` int32 [in_features, out_features / 8] has eight output features a word, in the order 0, 2, 4, 6, 1, 3, 5, 7
from the lowest bits; so has ``qzeros`` [groups, out_features / 8]. ``scales`` is [groups, out_features].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from outrider.engine.errors import ModelError
from outrider.engine.models.checkpoint import Checkpoint
from outrider.engine.models.fields import Fields
from outrider.engine.models.quantized.method import SCALES, StoredQuants, group_size, one_of, quants_at, with_zeros
from outrider.native.quantized import QuantFormat, Quants
from torch import Tensor

_BITS = 4
_IN_WORD = 8
_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)
"""The place of each of a word's output features, from the lowest bits."""


@dataclass(frozen=True, slots=True)
class Awq:
    """Four bits, with a scale and a zero point a group.

    Attributes:
        group: input features of a group; -1 is all of them.
    """

    group: int

    floats: ClassVar[bool] = False

    @classmethod
    def parse(cls, fields: Fields) -> Awq:
        """The method of a ``quantization_config``; `ModelError` if it is not supported."""
        one_of(fields, "version", ("gemm", "GEMM"), "gemm")
        one_of(fields, "bits", (_BITS,))
        one_of(fields, "zero_point", (True,), True)
        return cls(group_size(fields))

    def is_quantized(self, source: Checkpoint, module: str) -> bool:
        """See `Method`."""
        return source.has(f"{module}.qweight")

    def weight(self, source: Checkpoint, module: str, shape: tuple[int, int]) -> StoredQuants:
        """See `Method`."""
        out, inner = shape
        group = inner if self.group == -1 else self.group
        if out % _IN_WORD or inner % group:
            raise ModelError(
                f"{module} has {out} output and {inner} input features; AWQ needs a multiple of {_IN_WORD} output "
                f"features, and of {group} input features"
            )
        words = source.take_stored(f"{module}.qweight", (inner, out // _IN_WORD), ("I32",))
        zeros = source.take_stored(f"{module}.qzeros", (inner // group, out // _IN_WORD), ("I32",))
        scales = source.take_stored(f"{module}.scales", (inner // group, out), SCALES)

        def read(rows: Tensor) -> Quants:
            quants, points = (quants_at(packed, rows, _BITS, _PLACES).T for packed in (words, zeros))
            return with_zeros(quants, scales[:, rows].T, points)

        return StoredQuants(QuantFormat(_BITS, group, has_minima=True), shape, read)
