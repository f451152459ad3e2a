"""What computing a page takes beside other pages of the same model."""

from __future__ import annotations

from collections.abc import Callable

from outrider.models.config import ModelConfig


def page_cost(config: ModelConfig, page_size: int) -> Callable[[int], float]:
    """The arithmetic of the page at a place of its chain, counted from 0, in products of its tokens with all weights.

    To these comes attention, which grows with the tokens before: two multiplications for each of them, and each
    dimension of each head.
    """
    queries, others = config.heads * config.head_dim, config.kv_heads * config.head_dim
    weights = config.hidden_size * (2 * queries + 2 * others + 3 * config.intermediate_size)
    attention = 2 * queries * page_size / weights
    return lambda place: 1.0 + attention * (place + 0.5)
