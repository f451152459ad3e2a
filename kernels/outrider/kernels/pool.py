"""Keys and values of all layers in fixed-size pages."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from outrider.kernels.huge_pages import HUGE, map_zeros
from outrider.kernels.kv_quant import LARGEST_QUANT
from torch import Tensor

POOL_DTYPES = (torch.float32, torch.bfloat16, torch.float16, *LARGEST_QUANT)
"""Dtypes of keys and values."""
_PACKED = (torch.bfloat16, torch.int8)


class KvPool:
    """Pages of keys and values.

    A *slot* is the place of one token, ``page * page_size + offset``. A slot's keys and values lie together, so that a
    row is written at once; keys are in the interleaved rotary order of `rope_kv_write`.

    In 8 bits every head of every slot's keys and values has a scale of its own (`outrider.kernels.kv_quant`). Triton
    kernels take pools of all dtypes, the compiled decoder those in float32, int8 and packed bfloat16; `keys`, `values`
    and `gather` read float32 pools.

    Attributes:
        data: [layers, pages * page_size, 2, kv_heads, head_dim]; keys at 0 and values at 1 of the third axis.
        packed: whether pages have the layout of the compiled decoder (`outrider.native`): a block has the largest
            power of two of slots up to 16 that divides a page, and holds, for each key head, the keys as
            [head_dim / 2, block, 2] and then the values as [block / 2, head_dim, 2]. `data` then serves only for its
            size and for whole pages.
        scales: float32 [layers, pages * page_size, 2, kv_heads], by which the quants of an 8-bit pool are multiplied;
            None for other pools.
        slots: of each layer, [pages * page_size, 2 * kv_heads * head_dim].

    Raises:
        ValueError: the dtype is none of `POOL_DTYPES`, or neither bfloat16 nor int8 for packed pages.
        MemoryError: the CPU's memory is too small.
    """

    def __init__(
        self,
        layers: int,
        pages: int,
        page_size: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        packed: bool = False,
    ) -> None:
        if dtype not in POOL_DTYPES:
            raise ValueError(f"keys and values in {dtype}; they are kept in one of {', '.join(map(str, POOL_DTYPES))}")
        if packed and dtype not in _PACKED:
            raise ValueError(f"packed pages in {dtype}; only those in {' and '.join(map(str, _PACKED))} are packed")
        self.pages, self.packed = pages, packed
        self.page_size = page_size
        self.kv_heads = kv_heads
        self.head_dim = head_dim
        self.data = _zeros((layers, pages * page_size, 2, kv_heads, head_dim), dtype, torch.device(device))
        shape = (layers, pages * page_size, 2, kv_heads)
        self.scales = _zeros(shape, torch.float32, torch.device(device)) if dtype in LARGEST_QUANT else None
        self.slots = self.data.flatten(2).unbind(0)
        self._keys = self.data[:, :, 0].permute(0, 2, 3, 1)
        self._values = self.data[:, :, 1].transpose(1, 2)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of keys and values."""
        return self.data.dtype

    @staticmethod
    def slot_bytes(layers: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
        """Bytes of a token in a pool, with its scales."""
        return layers * 2 * kv_heads * (head_dim * dtype.itemsize + (4 if dtype in LARGEST_QUANT else 0))

    def keys(self, start: int, count: int) -> tuple[Tensor, ...]:
        """Keys of ``count`` consecutive slots of each layer as [kv_heads, head_dim, count], without copying."""
        return self._keys.narrow(3, start, count).unbind(0)

    def values(self, start: int, count: int) -> tuple[Tensor, ...]:
        """Values of ``count`` consecutive slots of each layer as [kv_heads, count, head_dim], without copying."""
        return self._values.narrow(2, start, count).unbind(0)

    def gather(self, layer: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Copies of a layer's keys [kv_heads, head_dim, n] and values [kv_heads, n, head_dim] at int64 [n] slots."""
        rows = self.slots[layer].index_select(0, slots).view(-1, 2, self.kv_heads, self.head_dim)
        return rows[:, 0].permute(1, 2, 0), rows[:, 1].transpose(0, 1)

    @torch.inference_mode()
    def wipe(self, pages: Sequence[int]) -> None:
        """Overwrites ``pages`` with zeros."""
        chosen = torch.tensor(pages, dtype=torch.long, device=self.data.device)
        for part in (self.data, self.scales):
            if part is not None:
                paged = part.view(part.shape[0], part.shape[1] // self.page_size, -1)
                paged.view(torch.uint8).index_fill_(1, chosen, 0)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros, on a CPU in huge pages unless they are smaller than one.

    They are written at once, so that no step waits for memory, and a lack of memory shows now.
    """
    size = math.prod(shape) * dtype.itemsize
    if device.type != "cpu" or size < HUGE:
        return torch.zeros(shape, dtype=dtype, device=device)
    return map_zeros(size).zero_().view(dtype).view(shape)
