"""The experts' tensors of a checkpoint, which stand there by one of three sets of names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from outrider.engine.errors import ModelError
from outrider.engine.models.checkpoint import WeightSource
from outrider.engine.models.families.experts import Experts
from outrider.native.quantized import QuantizedWeight
from torch import Tensor

Weight = Tensor | QuantizedWeight


@dataclass(frozen=True, slots=True)
class ExpertNames:
    """Names of a layer's tensors.

    Attributes:
        router: of the router's weight.
        experts: of what all experts' tensors begin with.
        gate, up, down: of an expert's weights; empty where one tensor holds all experts.
    """

    router: str
    experts: str
    gate: str = ""
    up: str = ""
    down: str = ""

    @classmethod
    def of(cls, layer: str, checkpoint: WeightSource) -> ExpertNames:
        """The names that the checkpoint uses in ``layer``: Mixtral's, all experts in one tensor, or Qwen's."""
        mixtral = f"{layer}.block_sparse_moe"
        if checkpoint.has(f"{mixtral}.gate.weight"):
            return cls(f"{mixtral}.gate.weight", f"{mixtral}.experts", "w1", "w3", "w2")
        router, experts = f"{layer}.mlp.gate.weight", f"{layer}.mlp.experts"
        if checkpoint.has(f"{experts}.gate_up_proj"):
            return cls(router, experts)
        return cls(router, experts, "gate_proj", "up_proj", "down_proj")


def expert_weights(
    names: ExpertNames, checkpoint: WeightSource, experts: Experts, hidden: int
) -> Iterator[tuple[Weight, Weight, Weight]]:
    """Of each expert, the weights of gate and up [intermediate, hidden] and of down [hidden, intermediate].

    Raises:
        ModelError: a tensor is missing, or has another shape or kind.
    """
    count, width = experts.count, experts.intermediate_size
    if names.gate:
        for index in range(count):
            expert = f"{names.experts}.{index}"
            gate, up = (checkpoint.take(f"{expert}.{part}.weight", (width, hidden)) for part in (names.gate, names.up))
            yield gate, up, checkpoint.take(f"{expert}.{names.down}.weight", (hidden, width))
        return
    joined = _tensor(names, checkpoint, "gate_up_proj", (count, 2 * width, hidden))
    down = _tensor(names, checkpoint, "down_proj", (count, hidden, width))
    yield from ((joined[index, :width], joined[index, width:], down[index]) for index in range(count))


def _tensor(names: ExpertNames, checkpoint: WeightSource, part: str, shape: Sequence[int]) -> Tensor:
    tensor = checkpoint.take(f"{names.experts}.{part}", shape)
    if not isinstance(tensor, Tensor):
        raise ModelError(f"{names.experts}.{part} is quantized; such experts must be a tensor each")
    return tensor
