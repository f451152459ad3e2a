"""Steps at the places of the next larger size, as CUDA graphs want them, say what they say at places of their own.

Without a GPU what is captured runs again an operator at a time; with one, as a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from outrider.kernels import backend
from outrider.kernels.batch import SequenceRows
from outrider.kernels.pool import KvPool
from outrider.models import graphs, llama
from outrider.models.eager import EagerForward
from outrider.models.graphs import CudaCapture, GraphForward
from outrider.models.llama import LlamaModel
from torch import Tensor

from tests.kernels.device import DEVICE, noise
from tests.models.checkpoints import save, tokens
from tests.models.runs import PAGE_SIZE, step

_PAGES = 40
_TREE = [-1, 0, 0, 2, 2]


class Again:
    """Runs what was captured again, into the same tensor; counts how often."""

    def __init__(self) -> None:
        self.captured = self.replayed = 0

    def __call__(self, run: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        self.captured += 1
        again, out = CudaCapture()(run) if DEVICE.type == "cuda" else self._again(run)

        def counted() -> None:
            self.replayed += 1
            again()

        return counted, out

    def _again(self, run: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        out = run()

        def again() -> None:
            out.copy_(run())

        return again, out


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LlamaModel, LlamaModel, Again]]:
    """A model whose steps run as they come, the same one whose steps are captured, and who captures."""
    monkeypatch.setenv("OUTRIDER_KERNELS", "triton")
    backend.choice.cache_clear()
    monkeypatch.setattr(llama, "prove_invariance", lambda model: None)
    save("llama 3", tmp_path, layers=1)
    plain, captured, again = load(tmp_path), load(tmp_path), Again()
    assert isinstance(captured._forward, EagerForward)
    captured._forward = GraphForward(captured._forward, again)
    yield plain, captured, again
    backend.choice.cache_clear()


def load(directory: Path) -> LlamaModel:
    return LlamaModel.load(directory, dtype="float32", device=DEVICE.type, determinism="strict", graphs=False)


def filled(model: LlamaModel) -> KvPool:
    """Pages as if something had been computed before."""
    pool = model.new_pool(_PAGES, PAGE_SIZE)
    pool.data.copy_(noise(*pool.data.shape, dtype=pool.data.dtype))
    return pool


def decode(model: LlamaModel, pool: KvPool, shift: int) -> list[Tensor]:
    """A tree behind the first sequence, and a row behind the second."""
    ids = tokens(60).to(DEVICE)
    parts = [(ids[shift : shift + 5], SequenceRows(5, 140, range(20), _TREE))]
    row = (ids[shift + 5 : shift + 6], SequenceRows(1, 9, range(20, 30)))
    return step(model, pool, [*parts, row])


def test_a_captured_step_says_bit_for_bit_what_it_says_as_it_comes(
    models: tuple[LlamaModel, LlamaModel, Again],
) -> None:
    plain, captured, again = models
    pools = filled(plain), filled(captured)
    for shift in (0, 7):
        expected, found = (decode(m, p, shift) for m, p in zip((plain, captured), pools, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
        assert torch.equal(pools[0].data, pools[1].data)
    assert (again.captured, again.replayed) == (1, 1)


def test_steps_of_too_many_rows_run_as_they_come(
    models: tuple[LlamaModel, LlamaModel, Again], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, captured, again = models
    monkeypatch.setattr(graphs, "ROWS", (1,))
    pool, ids = captured.new_pool(_PAGES, PAGE_SIZE), tokens(8).to(DEVICE)
    for rows in (2, 2, 1, 1):
        step(captured, pool, [(ids[:rows], SequenceRows(rows, 0, range(4)))])
    assert (again.captured, again.replayed) == (1, 1)


def test_of_too_many_sizes_the_one_that_was_not_used_for_longest_is_forgotten(
    models: tuple[LlamaModel, LlamaModel, Again], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, captured, again = models
    monkeypatch.setattr(graphs, "_MOST_GRAPHS", 1)
    pool, ids = captured.new_pool(_PAGES, PAGE_SIZE), tokens(8).to(DEVICE)
    for rows in (1, 1, 2, 2, 1):
        step(captured, pool, [(ids[:rows], SequenceRows(rows, 0, range(4)))])
    assert (again.captured, len(captured._forward._steps)) == (2, 1)  # type: ignore[attr-defined]


def test_a_graph_keeps_the_pages_that_it_writes_to(models: tuple[LlamaModel, LlamaModel, Again]) -> None:
    _, captured, again = models
    ids = tokens(8).to(DEVICE)
    for _ in range(2):
        pool = captured.new_pool(_PAGES, PAGE_SIZE)
        for _ in range(2):
            step(captured, pool, [(ids[:2], SequenceRows(2, 0, range(4)))])
        assert pool.data.any()
    assert again.captured == 2
