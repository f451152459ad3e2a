"""With ``determinism = "strict"`` a row's bits depend on the tokens before it and on nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.engine.models.llama import LlamaModel, ModelError
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.invariance import NotInvariant, invariant_tiling
from outrider.kernels.pool import KvPool
from outrider.kernels.tree_attention import Tiling
from torch import Tensor

from tests.engine.models.checkpoints import FAMILIES, SHAPE, save, tokens
from tests.engine.models.runs import PAGE_SIZE, chunks, step, whole

_LENGTH = 290
_POOL_PAGES = 120
_PLAIN = {"num_hidden_layers": 2, "num_key_value_heads": 2}
_SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "head of 64, group of 2": (
        "llama 2",
        _PLAIN | {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 704},
    ),
    "head of 20, group of 1": (
        "llama 2",
        _PLAIN | {"hidden_size": 40, "num_attention_heads": 2, "intermediate_size": 52},
    ),
    "windows": ("gemma 3", {"head_dim": 20, "sliding_window": 50}),
    "experts": ("qwen 3 with experts", {"head_dim": 20, "num_hidden_layers": 2}),
}
_tries = settings(max_examples=15, deadline=None)


_CASES = [
    ("head of 64, group of 2", "float32", 2),
    ("head of 64, group of 2", "bfloat16", 1),
    ("head of 20, group of 1", "float32", 1),
    ("head of 20, group of 1", "bfloat16", 1),
    ("windows", "float32", 1),
    ("windows", "bfloat16", 2),
    ("experts", "float32", 1),
    ("experts", "bfloat16", 2),
]


@pytest.fixture(scope="module", params=_CASES, ids=lambda case: f"{case[0]}, {case[1]}, {case[2]} threads")
def strict(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LlamaModel, Tensor]]:
    """A strict model, and the bits of a sequence of `_LENGTH` tokens as one chunk."""
    shape, dtype, threads = request.param
    directory = tmp_path_factory.mktemp("strict")
    family, changes = _SHAPES[shape]
    config_class, model_class, fields = FAMILIES[family]
    torch.manual_seed(0)
    model_class(config_class(**SHAPE | fields | changes)).save_pretrained(directory)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    model = LlamaModel.load(directory, dtype=dtype, determinism="strict")
    yield model, whole(model, tokens(_LENGTH))
    torch.set_num_threads(before)


def poisoned(model: LlamaModel) -> KvPool:
    """A pool whose every slot is NaN."""
    pool = model.new_pool(_POOL_PAGES, PAGE_SIZE)
    pool.data.fill_(float("nan"))
    return pool


@st.composite
def page_lists(draw: st.DrawFn) -> list[int]:
    """Pages for `_LENGTH` tokens and 100 nodes, consecutive or not, of the first half of the pool."""
    count = -(-(_LENGTH + 100) // PAGE_SIZE)
    if draw(st.booleans()):
        first = draw(st.integers(0, _POOL_PAGES // 2 - count))
        return list(range(first, first + count))
    return draw(st.permutations(range(_POOL_PAGES // 2)))[:count]


@st.composite
def chunkings(draw: st.DrawFn, length: int) -> list[int]:
    """Lengths of chunks, many of them short, that make up ``length``."""
    lengths: list[int] = []
    while length:
        lengths.append(min(length, draw(st.sampled_from([1, 1, 1, 2, 3, 5, 17, 40, 130, 300]))))
        length -= lengths[-1]
    return lengths


@st.composite
def trees(draw: st.DrawFn, spine: int) -> tuple[list[int], list[int]]:
    """Parents of a tree with a path of ``spine`` nodes from its root, other nodes in between, and that path."""
    parents, path = [-1], [0]
    while len(path) < spine:
        for _ in range(draw(st.integers(0, 4))):
            parents.append(draw(st.integers(-1, len(parents) - 1)))
        path.append(len(parents))
        parents.append(path[-2])
    return parents, path


@st.composite
def neighbours(draw: st.DrawFn) -> list[tuple[Tensor, SequenceRows]]:
    """Other sequences of the step: their tokens and rows, in pages of the second half of the pool."""
    others: list[tuple[Tensor, SequenceRows]] = []
    for start in range(_POOL_PAGES // 2, _POOL_PAGES - 25, 25)[: draw(st.integers(0, 3))]:
        rows, context = draw(st.integers(1, 40)), draw(st.integers(0, 150))
        parents = draw(st.none() | st.just([(row - 1) // 2 for row in range(rows)]))
        others.append((tokens(rows, seed=start), SequenceRows(rows, context, range(start, start + 25), parents)))
    return others


@_tries
@given(data=st.data(), pages=page_lists())
def test_it_does_not_matter_in_which_chunks_a_sequence_comes(
    strict: tuple[LlamaModel, Tensor], data: st.DataObject, pages: list[int]
) -> None:
    model, expected = strict
    length = data.draw(st.integers(1, _LENGTH), label="length")
    lengths = data.draw(chunkings(length), label="chunks")
    logits = chunks(model, poisoned(model), tokens(_LENGTH)[:length], lengths, pages)
    assert torch.equal(logits, expected[:length])


@_tries
@given(data=st.data(), pages=page_lists(), spine=st.integers(1, 20), others=neighbours())
def test_a_path_in_a_tree_beside_other_sequences_has_the_bits_of_the_plain_sequence(
    strict: tuple[LlamaModel, Tensor],
    data: st.DataObject,
    pages: list[int],
    spine: int,
    others: list[tuple[Tensor, SequenceRows]],
) -> None:
    model, expected = strict
    context = data.draw(st.integers(0, _LENGTH - spine), label="context")
    parents, path = data.draw(trees(spine), label="tree")
    pool = poisoned(model)
    pool.data[:, _POOL_PAGES // 2 * PAGE_SIZE :] = 0.5
    if context:
        chunks(model, pool, tokens(_LENGTH)[:context], [context], pages)
    ids = tokens(len(parents), seed=1)
    ids[path] = tokens(_LENGTH)[context : context + spine]
    place = data.draw(st.integers(0, len(others)), label="place")
    others.insert(place, (ids, SequenceRows(len(parents), context, pages, parents)))
    logits = step(model, pool, others)[place]
    assert torch.equal(logits[path], expected[context : context + spine])


def test_a_tree_too_wide_for_one_product_still_has_the_bits_of_the_plain_sequence(
    strict: tuple[LlamaModel, Tensor],
) -> None:
    model, expected = strict
    pool, pages, ids = poisoned(model), range(_POOL_PAGES), tokens(_LENGTH)
    chunks(model, pool, ids[:120], [120], pages)
    parents = [-1, *[0] * 149, 149, 150]
    nodes = tokens(152, seed=1)
    nodes[[0, 149, 150, 151]] = ids[120:124]
    [logits] = step(model, pool, [(nodes, SequenceRows(152, 120, pages, parents))])
    assert torch.equal(logits[[0, 149, 150, 151]], expected[120:124])


def test_the_logits_of_some_rows_are_those_of_all_rows(strict: tuple[LlamaModel, Tensor]) -> None:
    model, _ = strict
    pool, ids = model.new_pool(8, PAGE_SIZE), tokens(50)
    batch = RaggedBatch.build([SequenceRows(50, 0, range(8))], PAGE_SIZE)
    hidden = model.forward(ids, batch, pool)
    everything = model.logits(hidden)
    for rows in ([7], [49, 3], list(range(0, 50, 3))):
        assert torch.equal(model.logits(hidden[rows]), everything[rows])


def test_strict_mode_is_refused_if_no_tiling_keeps_the_bits() -> None:
    with pytest.raises(NotInvariant, match="attention of 6 heads"):
        invariant_tiling(6, 2, 8, [Tiling(rows=1, least=1, most=10_000, block=5_000)])


class Crowded(LlamaModel):
    """A model whose rows change each other."""

    def logits(self, hidden: Tensor) -> Tensor:
        return super().logits(hidden) * (1 + len(hidden) * 1e-6)


def test_a_model_whose_rows_change_each_other_is_refused(tmp_path: Path) -> None:
    save("llama 3", tmp_path)
    Crowded.load(tmp_path)
    why = "cannot be kept here: the model's logits depend on how its rows are batched on this machine"
    with pytest.raises(ModelError, match=f'determinism = "strict" {why}'):
        Crowded.load(tmp_path, determinism="strict")


def test_strict_is_refused_where_no_kernels_keep_it(tmp_path: Path) -> None:
    save("llama 3", tmp_path)
    with pytest.raises(ModelError, match='determinism = "strict" on meta needs the Triton kernels'):
        LlamaModel.load(tmp_path, device="meta", determinism="strict")
