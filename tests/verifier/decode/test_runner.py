"""The time for which the verifier measures its model at start."""

from __future__ import annotations

from pathlib import Path

import pytest
from outrider.kernels.batch import RaggedBatch
from outrider.kernels.pool import KvPool
from outrider.models.llama import LlamaModel
from outrider.verifier.decode.runner import Runner
from torch import Tensor

from tests.toy_model import save_toy


class Sized(LlamaModel):
    """Records the number of rows of each step."""

    def forward(self, ids: Tensor, batch: RaggedBatch, pool: KvPool) -> Tensor:
        self.sizes.append(len(ids))
        return super().forward(ids, batch, pool)


@pytest.mark.parametrize(("within_s", "rounds"), [(0.0, 2), (600.0, 4)])
def test_more_than_two_rounds_are_measured_only_within_the_time(within_s: float, rounds: int, tmp_path: Path) -> None:
    save_toy(tmp_path, 40)
    model = Sized.load(tmp_path, dtype="float32")
    model.sizes = []
    cost = Runner(model, 16, 8).measure(32, 8, rounds=4, within_s=within_s)
    assert model.sizes == [1, 2, 3, 4, 6, 8] * rounds
    assert 0 < cost(1) <= cost(8)
