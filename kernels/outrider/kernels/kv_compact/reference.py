"""The definition of kv_compact."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.kernels.pool import KvPool


def kv_compact_batch(pool: KvPool, moves: Sequence[Sequence[tuple[int, int]]]) -> None:
    """Moves each sequence's rows, given as (source slot, destination slot), in all layers of ``pool``."""
    parts = [pool.data] if pool.scales is None else [pool.data, pool.scales]
    for part in parts:
        for layer in part:
            for sequence in moves:
                copies = [layer[source].clone() for source, _ in sequence]
                for row, (_, place) in zip(copies, sequence, strict=True):
                    layer[place].copy_(row)
