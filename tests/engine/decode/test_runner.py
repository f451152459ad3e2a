"""The time for which the verifier measures its model at start."""

from __future__ import annotations

from pathlib import Path

from outrider.engine.decode.runner import Runner
from outrider.engine.models.llama import LlamaModel
from outrider.engine.scheduling.cost_curve import most_measured
from outrider.kernels.batch import RaggedBatch
from outrider.kernels.pool import KvPool
from torch import Tensor

from tests.kernels.choosing import kernels
from tests.toy_model import save_toy


class Sized(LlamaModel):
    """Records the number of rows of each step."""

    def forward(self, ids: Tensor, batch: RaggedBatch, pool: KvPool) -> Tensor:
        self.sizes.append(len(ids))
        return super().forward(ids, batch, pool)


def sizes(directory: Path, rounds: int, each_s: float, *, limit: int = 8) -> list[int]:
    """The rows of the steps that are measured."""
    save_toy(directory, 40)
    model = Sized.load(directory, dtype="float32")
    model.sizes = []
    cost = Runner(model, 16, 8).measure(32, limit, rounds, each_s)
    assert 0 < cost(1) <= cost(limit)
    return model.sizes


def test_every_round_has_all_numbers_of_rows_while_steps_are_quick(tmp_path: Path) -> None:
    assert sizes(tmp_path, 4, 600.0) == [1, 2, 3, 4, 6, 8] * 4


def test_more_rows_than_a_tree_has_are_several_trees(tmp_path: Path) -> None:
    assert sizes(tmp_path, 1, 600.0, limit=200)[-4:] == [64, 96, 128, 192]


def test_all_rows_of_a_step_are_measured_on_a_gpu_alone() -> None:
    assert most_measured("cuda", guesses=64, rows=320) == 320
    assert most_measured("cpu", guesses=64, rows=320) == 65


def test_slow_steps_are_measured_once_and_again_only_where_they_are_not_compiled(tmp_path: Path) -> None:
    with kernels("native"):
        assert sizes(tmp_path, 4, 0.0, limit=24) == [1, 2, 3, 4, 6, 8, 12, 16]
    with kernels("torch"):
        assert sizes(tmp_path, 4, 0.0) == [1, 2, 3, 4, 6, 8] * 2
