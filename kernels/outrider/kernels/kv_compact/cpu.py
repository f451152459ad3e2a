"""kv_compact in plain torch: all sources are read before any destination is written."""

from __future__ import annotations

import torch
from outrider.kernels.pool import KvPool
from torch import Tensor


def move(pool: KvPool, sources: Tensor, places: Tensor) -> None:
    """Moves what is at the slots ``sources`` to ``places``, both int64 [n]; a source of -1 moves nothing.

    Raises:
        ValueError: the pool is packed, for which there are only compiled moves.
    """
    if pool.packed:
        raise ValueError("packed pages are moved by the compiled library alone")
    real = sources >= 0
    sources, places = sources[real], places[real]
    data = pool.data.view(torch.uint8) if pool.data.dtype == torch.float8_e4m3fn else pool.data
    for part in (data,) if pool.scales is None else (data, pool.scales):
        part[:, places] = part[:, sources]
