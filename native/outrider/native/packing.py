"""Packs weights as the compiled decoder reads them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from typing import Any

import torch
from outrider.native.library import Library, checked, data_pointer, ffi
from outrider.native.quantized import Blocks, QuantFormat, QuantizedWeight, blocks_of
from outrider.native.weights import DENSE_BLOCK, MOST_PARTS, STRIP, Part, Projection
from torch import Tensor

_KINDS = {
    torch.float32: "FLOAT32",
    torch.bfloat16: "BFLOAT16",
    torch.float16: "FLOAT16",
}
_FIELDS = 5
"""Of a format that compiled code knows: it has no eight-bit floats."""
_QUANTS_AT_ONCE = 1 << 20
"""Quants that a thread unpacks and packs at once, so that they stay in its cache."""


def has_matmul(library: Library, weight: QuantizedWeight) -> bool:
    """Whether there is compiled code for projections with ``weight``."""
    return bool(_strip_size(library, weight))


def _strip_size(library: Library, weight: QuantizedWeight) -> int:
    if weight.format.floats:
        return 0
    form = ffi.new("outrider_quant_format *", _fields(weight.format))
    size: int = library.functions.outrider_strip_size(weight.shape[1], form)
    return size


def _fields(form: QuantFormat) -> tuple[int, ...]:
    return tuple(map(int, astuple(form)[:_FIELDS]))


class Packing:
    """Makes the ``outrider_linear`` and ``outrider_projection`` of weights, and keeps their memory.

    Attributes:
        read: bytes of packed weights that all projections read.

    Args:
        library: the compiled library.
        memory: allocates uint8 [size].
        threads: that pack quants.
    """

    def __init__(self, library: Library, memory: Callable[[int], Tensor], threads: int) -> None:
        self._library, self._functions = library, library.functions
        self._memory, self._threads = memory, threads
        self._kept: list[Tensor] = []
        self._table: tuple[QuantizedWeight, dict[str, Any], int] | None = None
        self.read = 0

    def projection(self, projection: Projection) -> dict[str, Any]:
        """The fields of an ``outrider_projection``.

        Raises:
            ValueError: there is no compiled code for a part, or a part would end inside a block.
        """
        *inner, _ = projection.parts
        if len(projection.parts) > MOST_PARTS:
            raise ValueError(f"a projection of {len(projection.parts)} parts; there may be up to {MOST_PARTS}")
        for part in inner:
            block = DENSE_BLOCK if isinstance(part.weight, Tensor) else STRIP
            if part.weight.shape[0] % block:
                raise ValueError(f"a part of {part.weight.shape[0]} output features is no multiple of {block}")
        return {"parts": [self._linear(part) for part in projection.parts], "count": len(projection.parts)}

    def table(self, weight: Tensor | QuantizedWeight) -> dict[str, Any]:
        """The fields of the ``outrider_linear`` of an embedding."""
        if isinstance(weight, Tensor):
            rows = self._keep(weight.contiguous())
            return {"weight": rows, "kind": _kind(weight), "n": weight.shape[0], "k": weight.shape[1]}
        before = self.read
        fields = self._quantized(weight)
        self._table = weight, fields, self.read - before
        self.read = before
        return fields

    def _linear(self, part: Part) -> dict[str, Any]:
        bias = ffi.NULL if part.bias is None else self._keep(part.bias.float().contiguous())
        if isinstance(part.weight, Tensor):
            return self._dense(part.weight) | {"bias": bias}
        if self._table is not None and self._table[0] is part.weight:
            self.read += self._table[2]
            return self._table[1] | {"bias": bias}
        return self._quantized(part.weight) | {"bias": bias}

    def _dense(self, weight: Tensor) -> dict[str, Any]:
        n, k = weight.shape
        kind, weight = _kind(weight), weight.contiguous()
        packed = self._packed(self._functions.outrider_packed_size(n, k, kind))
        self._functions.outrider_pack(data_pointer(packed), data_pointer(weight), n, k, kind)
        return {"weight": self._keep(packed), "kind": kind, "n": n, "k": k}

    def _quantized(self, weight: QuantizedWeight) -> dict[str, Any]:
        n, k = weight.shape
        size = _strip_size(self._library, weight)
        if not size:
            raise ValueError(f"there is no compiled code for {weight.format} and {k} input features")
        packed = self._packed(size * -(-n // STRIP))
        at_once = max(_QUANTS_AT_ONCE // k // STRIP, 1) * STRIP
        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(lambda first: self._pack(packed, weight, first, at_once, size), range(0, n, at_once)))
        kind, form = _number("weight_kind", "QUANTIZED"), _fields(weight.format)
        return {"weight": self._keep(packed), "kind": kind, "n": n, "k": k, "format": form}

    def _packed(self, size: int) -> Tensor:
        self.read += size
        return self._memory(size)

    def _pack(self, packed: Tensor, weight: QuantizedWeight, first: int, count: int, size: int) -> None:
        rows = torch.arange(first, min(first + count, weight.shape[0]))
        to, form = data_pointer(packed[first // STRIP * size :]), _fields(weight.format)
        if (blocks := blocks_of(weight, rows)) is not None:
            return self._pack_blocks(to, blocks, weight.shape[1], form)
        quants = weight.quants(rows)
        kept = [quants.quants, quants.scales, quants.minima, quants.scale_units, quants.minimum_units]
        kept = [None if each is None else each.contiguous() for each in kept]
        names = ("uint8_t *", *["float *"] * 4)
        pointers = [_pointer(name, each) for name, each in zip(names, kept, strict=True)]
        fields = (*pointers, len(rows), weight.shape[1], form)
        self._functions.outrider_pack_quants(to, ffi.new("outrider_quants *", fields))

    def _pack_blocks(self, to: Any, blocks: Blocks, k: int, form: tuple[int, ...]) -> None:
        data, rows = blocks.data.contiguous(), blocks.rows.contiguous()
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(data):
            raise IndexError(f"rows {int(rows.min())} to {int(rows.max())} of a weight of {len(data)}")
        pointers = _pointer("uint8_t *", data), _pointer("int64_t *", rows)
        fields = (*pointers, len(rows), k, _number("block_kind", blocks.kind), form)
        checked(self._functions.outrider_pack_blocks(to, ffi.new("outrider_blocks *", fields)))

    def _keep(self, tensor: Tensor) -> Any:
        """A pointer to ``tensor``, which then lives as long as the packing."""
        self._kept.append(tensor)
        return data_pointer(tensor)


def _kind(weight: Tensor) -> int:
    if weight.dtype not in _KINDS:
        raise ValueError(f"there is no compiled code for weights in {weight.dtype}")
    return _number("weight_kind", _KINDS[weight.dtype])


def _number(enumeration: str, name: str) -> int:
    """A number of one of the header's enumerations; all names without their prefix."""
    number: int = ffi.typeof(f"outrider_{enumeration}").relements[f"OUTRIDER_{name}"]
    return number


def _pointer(kind: str, tensor: Tensor | None) -> Any:
    return ffi.NULL if tensor is None else ffi.cast(kind, tensor.data_ptr())
