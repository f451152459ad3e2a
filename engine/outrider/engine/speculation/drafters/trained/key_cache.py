"""Keys and values of a head's layers for one session."""

from __future__ import annotations

import torch
from outrider.engine.speculation.heads.decoder import attend_masked
from outrider.engine.speculation.heads.shape import HeadShape
from torch import Tensor

_LEAST = 128


class KeyCache:
    """Grows by doubling. Rows behind `length` are of guesses, which later rows overwrite.

    Attributes:
        length: rows that stay.
    """

    def __init__(self, shape: HeadShape, dtype: torch.dtype, device: torch.device) -> None:
        self._rows = torch.empty(2, shape.layers, shape.kv_heads, 0, shape.head_dim, dtype=dtype, device=device)
        self.length = 0

    def write(self, layer: int, start: int, keys: Tensor, values: Tensor) -> None:
        """Writes rows [rows, kv_heads, head_dim] of a layer from the place ``start`` on."""
        end = start + len(keys)
        self._reserve(end)
        self._rows[0, layer, :, start:end] = keys.transpose(0, 1)
        self._rows[1, layer, :, start:end] = values.transpose(0, 1)

    def attend(self, layer: int, query: Tensor, end: int, mask: Tensor | None) -> Tensor:
        """Attention of queries [rows, heads, head_dim] over the first ``end`` rows; float32.

        ``mask``, bool [rows, n], is what each row sees of the last n of these; all see those before.
        """
        keys, values = self._rows[:, layer, :, :end].transpose(1, 2)
        if mask is not None and mask.shape[1] < end:
            mask = torch.cat([mask.new_ones(len(mask), end - mask.shape[1]), mask], dim=1)
        return attend_masked(query.to(keys.dtype), keys, values, mask).float()

    def _reserve(self, rows: int) -> None:
        old, capacity = self._rows, self._rows.shape[3]
        if rows > capacity:
            more = max(rows, 2 * capacity, _LEAST) - capacity
            self._rows = torch.cat([old, old.new_empty(*old.shape[:3], more, old.shape[4])], dim=3)
