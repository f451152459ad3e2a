"""Tensors of a mapped GGUF file: plain ones as they lie in it, quantized ones as quants, decoded when asked for."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from outrider.engine.models.gguf.blocks import BLOCK_FORMATS, BlockFormat
from outrider.engine.models.gguf.header import GgufFile, TensorPlace
from outrider.native.quantized import Blocks, QuantFormat, Quants
from torch import Tensor

PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
"""Types that are no quants, with their dtypes."""
TYPES = (*PLAIN, *BLOCK_FORMATS)
"""Names of all types that can be loaded."""
_ELEMENTS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class GgufWeight:
    """A `QuantizedWeight` in a mapped file.

    Attributes:
        blocks: uint8 [rows, blocks of a row, bytes of a block], in the map.
        kind: name of the blocks' type.
        shape: output and input features.
    """

    blocks: Tensor
    kind: str
    shape: tuple[int, int]

    @property
    def form(self) -> BlockFormat:
        """The type of the blocks."""
        return BLOCK_FORMATS[self.kind]

    @property
    def format(self) -> QuantFormat:
        """See `QuantizedWeight`."""
        return self.form.format

    def quants(self, rows: Tensor) -> Quants:
        """See `QuantizedWeight`."""
        at_once = max(1, _ELEMENTS_AT_ONCE // self.shape[1])
        parts = [self.form.decode(self._blocks(part)) for part in torch.split(rows, at_once)]
        return parts[0] if len(parts) == 1 else _joined(parts)

    def in_blocks(self, rows: Tensor) -> Blocks:
        """See `WeightInBlocks`."""
        return Blocks(self.kind, self.blocks, rows)

    def _blocks(self, rows: Tensor) -> Tensor:
        """Blocks of some rows; of consecutive ones they need not be copied."""
        first, last = (int(rows[0]), int(rows[0]) + len(rows)) if len(rows) else (0, 0)
        if first >= 0 and last <= self.shape[0] and torch.equal(rows, torch.arange(first, last)):
            return self.blocks[first:last]
        return self.blocks.flatten(1).index_select(0, rows).view(-1, *self.blocks.shape[1:])


def tensor(file: GgufFile, place: TensorPlace) -> Tensor:
    """A tensor of a type in `PLAIN`: the file's own bytes, which must not be written to."""
    return _bytes(file, place).view(PLAIN[place.type.name]).view(place.shape)


def weight(file: GgufFile, place: TensorPlace) -> GgufWeight:
    """A weight of two dimensions and of a type in `BLOCK_FORMATS`."""
    rows, columns = place.shape
    blocks = _bytes(file, place).view(rows, columns // place.type.elements, place.type.size)
    return GgufWeight(blocks, place.type.name, (rows, columns))


def release(file: GgufFile, place: TensorPlace) -> None:
    """Gives the memory of a tensor's pages back; who reads them again has them read from the file again."""
    first = -(-place.start // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (place.start + place.size) // mmap.PAGESIZE * mmap.PAGESIZE
    if first < last:
        file.data.madvise(mmap.MADV_DONTNEED, first, last - first)


def _joined(parts: Sequence[Quants]) -> Quants:
    def joined(name: str) -> Tensor | None:
        tensors = [getattr(part, name) for part in parts]
        return None if tensors[0] is None else torch.cat(tensors)

    return Quants(
        torch.cat([part.quants for part in parts]),
        torch.cat([part.scales for part in parts]),
        *map(joined, ("minima", "scale_units", "minimum_units")),
    )


def _bytes(file: GgufFile, place: TensorPlace) -> Tensor:
    return torch.frombuffer(file.data, dtype=torch.uint8, count=place.size, offset=place.start)
