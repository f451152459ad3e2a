"""What the host reads of a step of a model with experts on Triton's kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from outrider.engine.models.checkpoint import Checkpoint
from outrider.engine.models.config import ModelConfig
from outrider.engine.models.operators.eager import EagerForward
from outrider.engine.models.weights import Packer, WeightLoader
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.linear import Quantization
from outrider.kernels.pool import KvPool
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.engine.models.checkpoints import save, tokens
from tests.kernels.choosing import kernels
from tests.kernels.device import DEVICE

_READS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class HostReads(TorchDispatchMode):
    """Notes operators that need a tensor's values on the host, where it would wait for them."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _READS.intersection(func.tags):
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def forward(directory: Path, quantization: Quantization | None) -> EagerForward:
    packer = Packer(torch.float32, DEVICE, True, quantization)
    config = ModelConfig.load(directory)
    with torch.inference_mode():
        return EagerForward(WeightLoader(Checkpoint(directory), config, torch.float32, DEVICE, packer), True)


def run(model: EagerForward, reads: HostReads, rows: int) -> Tensor:
    pool = KvPool(1, 4, 8, 2, 8, device=DEVICE)
    batch = RaggedBatch.build([SequenceRows(rows, 0, range(4))], 8, DEVICE)
    plan = model.plan(batch, pool)
    with reads:
        return model.run(tokens(rows).to(DEVICE), batch.positions, batch.slots, plan, pool)


@pytest.mark.parametrize("quantization", [None, "int8"])
def test_a_step_reads_nothing_from_the_device_unless_its_experts_are_a_loop(
    quantization: Quantization | None, tmp_path: Path
) -> None:
    save("mixtral", tmp_path, layers=1)
    with kernels("triton"):
        model, reads = forward(tmp_path, quantization), HostReads()
        run(model, reads, 3)
    assert reads.names == ([] if quantization is None else ["aten.bincount.default"])
    assert model.on_device == (quantization is None)
