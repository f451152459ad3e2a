"""A rank's share of a model: some heads, some columns of the feed-forward block, some rows of the vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from outrider.engine.errors import ModelError
from outrider.engine.models.checkpoint import Checkpoint, WeightSource
from outrider.engine.models.config import ModelConfig
from torch import Tensor

_EMBEDDING, _OUTPUT = "model.embed_tokens.weight", "lm_head.weight"
_ROWS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
_COLUMNS = ("o_proj", "down_proj")


def shard_config(config: ModelConfig, ranks: int) -> ModelConfig:
    """The configuration of one of ``ranks`` equal shares of the layers; `ModelError` if there are none.

    Heads of keys and values are not copied, so there are at most as many ranks.
    """
    if config.experts is not None:
        raise ModelError("tensor_parallel must be 1 for models with experts")
    for name, count in (
        ("num_attention_heads", config.heads),
        ("num_key_value_heads", config.kv_heads),
        ("intermediate_size", config.intermediate_size),
    ):
        if count % ranks:
            raise ModelError(f"tensor_parallel = {ranks} must divide the model's {name}, which is {count}")
    return replace(
        config,
        heads=config.heads // ranks,
        kv_heads=config.kv_heads // ranks,
        intermediate_size=config.intermediate_size // ranks,
    )


class Shard:
    """The tensors of a rank, of which no more is read from the checkpoint.

    The embedding and norms are whole. The output layer's rows are shared out in blocks of ``ceil(vocab_size / ranks)``.
    Biases that are added to a sum over all ranks are rank 0's alone.

    Raises:
        ModelError: the checkpoint cannot be read in parts.
    """

    quantized = False

    def __init__(self, whole: WeightSource, rank: int, ranks: int) -> None:
        if not isinstance(whole, Checkpoint):
            kind = "quantized weights" if whole.quantized else "GGUF files"
            raise ModelError(f"tensor_parallel must be 1 for {kind}: only safetensors in 16 or 32 bits are shared out")
        self._whole, self._rank, self._ranks = whole, rank, ranks
        self.headless = whole.headless

    def has(self, name: str) -> bool:
        """See `WeightSource`."""
        return self._whole.has(name)

    def take(self, name: str, shape: Sequence[int]) -> Tensor:
        """See `WeightSource`; ``shape`` is that of the share, but the whole one for the output layer."""
        module, _, kind = name.rpartition(".")
        layer = module.rpartition(".")[2]
        if layer in _ROWS:
            return self._part(name, shape, 0)
        if layer in _COLUMNS and kind == "weight":
            return self._part(name, shape, 1)
        if name == _OUTPUT and self.has(_EMBEDDING):
            return self._whole.take_part(name, shape, self.vocabulary(shape[0]))
        tensor = self._whole.take(name, shape)
        return tensor.new_zeros(tensor.shape) if layer in _COLUMNS and self._rank else tensor

    def vocabulary(self, size: int) -> slice:
        """The rank's rows of an output layer of ``size`` rows."""
        width = -(-size // self._ranks)
        return slice(min(self._rank * width, size), min((self._rank + 1) * width, size))

    def finish(self, ignored: Iterable[str] = ()) -> None:
        """See `WeightSource`."""
        self._whole.finish(ignored)

    def _part(self, name: str, shape: Sequence[int], axis: int) -> Tensor:
        share, first = shape[axis], self._rank * shape[axis]
        whole = [*shape[:axis], share * self._ranks, *shape[axis + 1 :]]
        return self._whole.take_part(name, whole, *[slice(None)] * axis, slice(first, first + share))
