"""Steps at the places of the next larger size, as CUDA graphs want them, say what they say at places of their own.

Without a GPU what is captured runs again an operator at a time; with one, as a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch
from outrider.engine.models.checkpoint import Checkpoint
from outrider.engine.models.config import ModelConfig
from outrider.engine.models.llama import LlamaModel
from outrider.engine.models.operators.eager import EagerForward
from outrider.engine.models.operators.graphs import CudaCapture, GraphForward
from outrider.engine.models.weights import Packer, WeightLoader
from outrider.kernels import backend
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.pool import KvPool
from torch import Tensor

from tests.engine.models.checkpoints import SHAPE, save, tokens
from tests.engine.models.runs import PAGE_SIZE, step
from tests.kernels.device import DEVICE, noise

_PAGES = 40
HIDDEN = SHAPE["hidden_size"]
_TREE = [-1, 0, 0, 2, 2]


class Again:
    """Runs a captured step again, into the same tensor; counts captures and replays.

    Attributes:
        room: captures that there is memory for.
    """

    def __init__(self) -> None:
        self.captured = self.replayed = self.tried = 0
        self.room: float = inf

    def __call__(self, run: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        self.tried += 1
        if self.captured >= self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.captured += 1
        again, out = CudaCapture(DEVICE)(run) if DEVICE.type == "cuda" else self._again(run)

        def counted() -> None:
            self.replayed += 1
            again()

        return counted, out

    def _again(self, run: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        out = run()

        def again() -> None:
            out.copy_(run())

        return again, out


Forward = EagerForward | GraphForward


class Models:
    """A model whose steps run eagerly, the same model with captured steps, and the capture."""

    def __init__(self, directory: Path) -> None:
        self.loaded = LlamaModel.load(directory, dtype="float32", device=DEVICE.type, graphs=False)
        self.plain, self.again = self.eager(directory), Again()
        self.directory = directory

    def eager(self, directory: Path) -> EagerForward:
        config = ModelConfig.load(directory)
        packer = Packer(torch.float32, DEVICE, True, None)
        loader = WeightLoader(Checkpoint(directory), config, torch.float32, DEVICE, packer)
        with torch.inference_mode():
            return EagerForward(loader, True)

    def captured(self, **most: Any) -> GraphForward:
        return GraphForward(self.eager(self.directory), self.again, **most)

    def pool(self) -> KvPool:
        return self.loaded.new_pool(_PAGES, PAGE_SIZE)


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Models]:
    monkeypatch.setenv("OUTRIDER_KERNELS", "triton")
    backend.choice.cache_clear()
    save("llama 3", tmp_path, layers=1)
    yield Models(tmp_path)
    backend.choice.cache_clear()


def filled(models: Models) -> KvPool:
    """Pages filled with noise, as if they had been used before."""
    pool = models.pool()
    pool.data.copy_(noise(*pool.data.shape, dtype=pool.data.dtype))
    return pool


def decode(model: Forward, pool: KvPool, shift: int) -> list[Tensor]:
    """A tree behind the first sequence, and a row behind the second."""
    ids = tokens(60).to(DEVICE)
    parts = [(ids[shift : shift + 5], SequenceRows(5, 140, range(20), _TREE))]
    row = (ids[shift + 5 : shift + 6], SequenceRows(1, 9, range(20, 30)))
    return step(model, pool, [*parts, row])


def test_a_captured_step_has_the_bits_of_an_eager_step(models: Models) -> None:
    plain, captured, again = models.plain, models.captured(), models.again
    pools = filled(models), filled(models)
    for shift in (0, 7):
        expected, actual = (decode(m, p, shift) for m, p in zip((plain, captured), pools, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(expected, actual, strict=True))
        assert torch.equal(pools[0].data, pools[1].data)
    assert (again.captured, again.replayed) == (1, 1)


def test_a_captured_step_keeps_the_states_that_an_eager_step_keeps(models: Models) -> None:
    captured, again, pools = models.captured(), models.again, (models.pool(), models.pool())
    ids, layers, last = tokens(12).to(DEVICE), (0, 1, 2), (2,)
    for rows, asked in ((3, ()), (3, ()), (3, layers), (2, layers), (4, layers), (4, last), (4, last)):
        kept = [torch.full((rows, len(asked), HIDDEN), torch.nan, device=DEVICE) for _ in pools]
        for model, pool, own in zip((models.plain, captured), pools, kept, strict=True):
            batch = RaggedBatch.build([SequenceRows(rows, 0, range(4))], PAGE_SIZE, DEVICE)
            model.forward(ids[:rows], batch, pool, asked, own)
        assert torch.equal(*kept)
    assert (again.captured, again.replayed) == (3, 3)


def test_steps_of_too_many_rows_run_as_they_come(models: Models) -> None:
    captured, again = models.captured(rows=(1,)), models.again
    pool, ids = models.pool(), tokens(8).to(DEVICE)
    for rows in (2, 2, 1, 1):
        step(captured, pool, [(ids[:rows], SequenceRows(rows, 0, range(4)))])
    assert (again.captured, again.replayed) == (1, 1)


def test_steps_whose_attention_needs_too_much_memory_run_as_they_come(models: Models) -> None:
    captured, again = models.captured(partials=16), models.again
    pool, ids = models.pool(), tokens(12).to(DEVICE)
    for context in (9, 9, 150, 150):
        step(captured, pool, [(ids, SequenceRows(12, context, range(30)))])
    assert (again.captured, again.replayed) == (1, 1)


def test_of_too_many_sizes_the_one_that_was_not_used_for_longest_is_forgotten(models: Models) -> None:
    captured, again = models.captured(most=1), models.again
    pool, ids = models.pool(), tokens(8).to(DEVICE)
    for rows in (1, 1, 2, 2, 1):
        step(captured, pool, [(ids[:rows], SequenceRows(rows, 0, range(4)))])
    assert (again.captured, again.replayed) == (2, 2)


def test_without_memory_for_a_graph_steps_run_as_they_come(models: Models) -> None:
    captured, again = models.captured(), models.again
    again.room = 1
    pool, ids = models.pool(), tokens(8).to(DEVICE)
    for rows in (1, 1, 2, 2, 2, 4, 4, 1):
        batch = [(ids[:rows], SequenceRows(rows, 0, range(4)))]
        expected, actual = step(models.plain, pool, batch)[0], step(captured, pool, batch)[0]
        assert torch.equal(expected, actual)
    assert (again.captured, again.tried, again.replayed) == (1, 2, 2)


def test_a_graph_keeps_the_pages_that_it_writes_to(models: Models) -> None:
    captured, again = models.captured(), models.again
    ids = tokens(8).to(DEVICE)
    for _ in range(2):
        pool = models.pool()
        for _ in range(2):
            step(captured, pool, [(ids[:2], SequenceRows(2, 0, range(4)))])
        assert pool.data.any()
    assert again.captured == 2
