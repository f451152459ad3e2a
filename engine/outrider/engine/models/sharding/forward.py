"""Runs a step on all ranks: rank 0 says what, and each runs its share."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from outrider.engine.errors import ModelError
from outrider.engine.models.config import ModelConfig
from outrider.engine.models.operators.eager import EagerForward
from outrider.engine.models.sharding.group import Group, SummedLinear
from outrider.engine.models.sharding.shard import Shard, shard_config
from outrider.engine.models.weights import Packer, WeightLoader
from outrider.kernels.backend import choice
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.kv_compact import Kept, kv_compact
from outrider.kernels.pool import KvPool
from torch import Tensor

Say = Callable[[tuple[str, Any]], None]
"""Sends all other ranks the name of a method of `Follower` and its arguments; the first call waits for them to load."""


class ShardForward:
    """A rank's share of a step, as `outrider.engine.models.llama.Forward`. All ranks have to call it together."""

    def __init__(self, eager: EagerForward, group: Group, vocabulary: int) -> None:
        self._eager, self._group, self._vocabulary = eager, group, vocabulary
        self.kv_dtypes = eager.kv_dtypes

    def forward(
        self,
        ids: Tensor,
        batch: RaggedBatch,
        pool: KvPool,
        layers: Sequence[int] = (),
        states: Tensor | None = None,
    ) -> Tensor:
        """See `outrider.engine.models.llama.Forward`; the same on all ranks."""
        return self._eager.forward(ids, batch, pool, layers, states)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """See `outrider.engine.models.llama.Forward`; on rank 0 alone."""
        hidden = hidden.contiguous()
        self._group.share(hidden)
        return self._group.join_columns(self._eager.logits(hidden), self._vocabulary)

    def embed(self, ids: Tensor) -> Tensor:
        """See `outrider.engine.models.llama.Forward`. The embedding is whole, so one rank may call it alone."""
        return self._eager.embed(ids)


class LeadingForward(ShardForward):
    """Rank 0's share of each step, which has the others run theirs."""

    def __init__(self, eager: EagerForward, group: Group, vocabulary: int, context: int, say: Say) -> None:
        super().__init__(eager, group, vocabulary)
        self._context, self._say = context, say
        self._lock = threading.RLock()
        self._pools: weakref.WeakKeyDictionary[KvPool, int] = weakref.WeakKeyDictionary()
        self._ended: list[int] = []
        self._made = 0

    def forward(
        self,
        ids: Tensor,
        batch: RaggedBatch,
        pool: KvPool,
        layers: Sequence[int] = (),
        states: Tensor | None = None,
    ) -> Tensor:
        """See `outrider.engine.models.llama.Forward`."""
        tokens = ids.tolist()
        if not 0 <= min(tokens) <= max(tokens) < self._vocabulary or max(batch.places) >= self._context:
            raise IndexError("a position or an id is out of the model's range")  # here, before other ranks fail by it
        with self._lock:
            self._tell("forward", self._number(pool), tokens, [_plain(each, batch) for each in batch.sequences])
            return super().forward(ids, batch, pool, layers, states)

    def logits(self, hidden: Tensor) -> Tensor:
        """See `outrider.engine.models.llama.Forward`."""
        with self._lock:
            self._tell("logits", tuple(hidden.shape))
            return super().logits(hidden)

    def compact(self, pool: KvPool, kept: Sequence[Kept]) -> None:
        """`kv_compact` on the other ranks."""
        with self._lock:
            self._tell(
                "compact", self._number(pool), [Kept(list(pages), context, list(rows)) for pages, context, rows in kept]
            )

    def wipe(self, pool: KvPool, pages: Sequence[int]) -> None:
        """`KvPool.wipe` on the other ranks."""
        with self._lock:
            self._tell("wipe", self._number(pool), list(pages))

    def _number(self, pool: KvPool) -> int:
        """The number under which other ranks have their share of the pages; they make it at the first use."""
        if pool not in self._pools:
            number = self._pools[pool] = self._made = self._made + 1
            weakref.finalize(pool, self._ended.append, number).atexit = False
            self._tell("open", number, pool.pages, pool.page_size)
        return self._pools[pool]

    def _tell(self, name: str, *arguments: Any) -> None:
        while self._ended:
            self._say(("end", (self._ended.pop(),)))
        self._say((name, arguments))


def load_share(shard: Shard, config: ModelConfig, group: Group, packer: Packer, say: Say | None) -> ShardForward:
    """Loads this rank's share of the model of ``config``; rank 0 gives ``say``.

    A share runs an operator at a time: the compiled decoder and CUDA graphs run whole steps.
    """
    if choice() == "native":
        raise ModelError('OUTRIDER_KERNELS is "native", which cannot be: tensor_parallel is above 1')
    loader = WeightLoader(
        shard,
        shard_config(config, group.size),
        packer.dtype,
        packer.device,
        packer,
        vocabulary=shard.vocabulary(config.vocab_size),
        ending=lambda parts, inner: SummedLinear(group, packer(parts, inner)),
    )
    eager = EagerForward(loader, group.fixed)
    if say is None:
        return ShardForward(eager, group, config.vocab_size)
    return LeadingForward(eager, group, config.vocab_size, config.context_length, say)


class Follower:
    """Runs what `LeadingForward` says, on another rank.

    Args:
        forward: the rank's share of steps.
        new_pool: makes the rank's share of pages, from their number and their size.
        device: of the share.
    """

    def __init__(self, forward: ShardForward, new_pool: Callable[[int, int], KvPool], device: torch.device) -> None:
        self._forward, self._new_pool, self._device = forward, new_pool, device
        self._pools: dict[int, KvPool] = {}

    def run(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Runs one of the methods below."""
        partial(getattr(self, name), *arguments)()

    def open(self, number: int, pages: int, page_size: int) -> None:
        """Makes pages."""
        self._pools[number] = self._new_pool(pages, page_size)

    def end(self, number: int) -> None:
        """Drops pages."""
        del self._pools[number]

    def forward(self, number: int, tokens: list[int], sequences: list[SequenceRows]) -> None:
        """Runs a step."""
        pool = self._pools[number]
        batch = RaggedBatch.build(sequences, pool.page_size, self._device)
        self._forward.forward(torch.tensor(tokens, device=self._device), batch, pool)

    def logits(self, shape: tuple[int, int]) -> None:
        """Computes logits of rank 0's rows of this ``shape``."""
        self._forward.logits(torch.empty(shape, device=self._device))

    def compact(self, number: int, kept: list[Kept]) -> None:
        """Moves keys and values."""
        kv_compact(self._pools[number], kept)

    def wipe(self, number: int, pages: list[int]) -> None:
        """Overwrites pages."""
        self._pools[number].wipe(pages)


def _plain(rows: SequenceRows, batch: RaggedBatch) -> SequenceRows:
    """The rows with no more pages than they need, as a list."""
    needed = -(-(rows.context + rows.nodes) // batch.page_size)
    return SequenceRows(rows.rows, rows.context, list(rows.pages[:needed]), rows.parents and list(rows.parents))
