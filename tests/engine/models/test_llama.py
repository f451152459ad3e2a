"""Our decoder against transformers' on tiny random checkpoints of every family."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from outrider.engine.models.llama import LlamaModel
from outrider.kernels.batch import RaggedBatch, SequenceRows
from torch import Tensor
from transformers import PreTrainedModel

from tests.engine.models.checkpoints import CONTEXT, Pair, save, tokens
from tests.engine.models.runs import PAGE_SIZE, chunks, multiplies_bfloat16, step, whole
from tests.kernels.choosing import kernels

_CLOSE = 1e-4


def theirs(model: PreTrainedModel, ids: Tensor) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(ids[None].to(model.device)).logits[0].float()
    return logits


def test_a_prompt_in_one_chunk_has_transformers_logits(family: Pair) -> None:
    ids = tokens(90)
    logits = theirs(family.theirs, ids)
    assert logits.std() > 0.5
    assert (whole(family.ours, ids) - logits).abs().max() < _CLOSE


def test_hidden_states_are_transformers_after_the_last_norm(family: Pair) -> None:
    ids = tokens(20)
    with torch.no_grad():
        expected = family.theirs.base_model(ids[None]).last_hidden_state[0]
    batch = RaggedBatch.build([SequenceRows(20, 0, range(3))], PAGE_SIZE)
    hidden = family.ours.forward(ids, batch, family.ours.new_pool(3, PAGE_SIZE))
    assert (hidden - expected).abs().max() < _CLOSE


def states(model: LlamaModel, ids: Tensor, layers: range) -> Tensor:
    """What enters ``layers`` at each of ``ids``, with a first chunk before the one that is asked for the rest."""
    pool, parts = model.new_pool(3, PAGE_SIZE), []
    for context, part in ((0, ids[:7]), (7, ids[7:])):
        batch = RaggedBatch.build([SequenceRows(len(part), context, range(3))], PAGE_SIZE)
        kept = torch.empty(len(part), len(layers), model.config.hidden_size)
        hidden = model.forward(part, batch, pool, layers, kept)
        assert torch.equal(kept[:, -1], hidden)
        parts.append(kept)
    return torch.cat(parts)


@pytest.mark.parametrize("kind", ["native", "torch"])
def test_what_enters_each_layer_is_what_it_is_in_transformers(family: Pair, kind: str) -> None:
    ids, last = tokens(20), family.ours.config.layers + 1
    with torch.no_grad():
        expected = family.theirs.base_model(ids[None], output_hidden_states=True)
    with kernels(kind if family.ours.compiled else "torch"):
        model = LlamaModel.load(family.directory, dtype="float32")
    kept = states(model, ids, range(last + 1))
    assert (model.compiled is not None) == (kind == "native" and family.ours.compiled is not None)
    for layer, theirs in enumerate((*expected.hidden_states[:-1], None, expected.last_hidden_state)):
        assert theirs is None or (kept[:, layer] - theirs[0]).abs().max() < _CLOSE
    assert torch.equal(model.embed(ids), kept[:, 0])
    with torch.no_grad():
        normed = family.theirs.base_model.norm(kept[:, last - 1])
    assert (kept[:, last] - normed).abs().max() < _CLOSE


def test_a_prompt_in_several_chunks_and_single_tokens_has_the_same_logits(family: Pair) -> None:
    ids, pages = tokens(70, seed=1), [7, 3, 4, 0, 9, 8, 2, 1, 5]
    pool = family.ours.new_pool(10, PAGE_SIZE)
    logits = chunks(family.ours, pool, ids, [1, 2, 23, 30, *[1] * 14], pages)
    assert (logits - theirs(family.theirs, ids)).abs().max() < _CLOSE


def test_every_path_of_a_tree_has_the_logits_of_the_plain_sequence(family: Pair) -> None:
    prompt, nodes, parents = tokens(29), tokens(9, seed=2), [-1, 0, 0, 1, -1, 3, 3, 4, 2]
    pool, pages = family.ours.new_pool(8, PAGE_SIZE), [5, 1, 0, 6, 7]
    chunks(family.ours, pool, prompt, [29], pages)
    [logits] = step(family.ours, pool, [(nodes, SequenceRows(9, 29, pages, parents))])
    for node in range(9):
        path = [node]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        plain = theirs(family.theirs, torch.cat([prompt, nodes[path]]))[29:]
        assert (logits[path] - plain).abs().max() < _CLOSE


def test_a_tree_may_grow_over_several_steps(family: Pair) -> None:
    prompt, nodes, parents = tokens(13), tokens(6, seed=3), [-1, -1, 0, 2, 1, 3]
    pool = family.ours.new_pool(4, PAGE_SIZE)
    chunks(family.ours, pool, prompt, [13], range(4))
    [at_once] = step(family.ours, pool, [(nodes, SequenceRows(6, 13, range(4), parents))])
    pool.slots[0][13:19] = float("nan")
    [first] = step(family.ours, pool, [(nodes[:3], SequenceRows(3, 13, range(4), parents[:3]))])
    [rest] = step(family.ours, pool, [(nodes[3:], SequenceRows(3, 13, range(4), parents))])
    assert (torch.cat([first, rest]) - at_once).abs().max() < _CLOSE


def test_sequences_that_share_a_step_do_not_change_each_other(family: Pair) -> None:
    a, b, c = tokens(40, seed=4), tokens(21, seed=5), tokens(9, seed=6)
    pool = family.ours.new_pool(16, PAGE_SIZE)
    pages_a, pages_b, pages_c = [15, 0, 14, 1, 13], [2, 3, 4], [12, 6]
    chunks(family.ours, pool, a[:33], [33], pages_a)
    chunks(family.ours, pool, b[:20], [20], pages_b)
    logits = step(
        family.ours,
        pool,
        [
            (a[33:], SequenceRows(7, 33, pages_a)),
            (b[20:], SequenceRows(1, 20, pages_b)),
            (c, SequenceRows(9, 0, pages_c, range(-1, 8))),
        ],
    )
    for ids, sequence_logits in zip((a, b, c), logits, strict=True):
        assert (sequence_logits - theirs(family.theirs, ids)[-len(sequence_logits) :]).abs().max() < _CLOSE


def test_a_long_prompt_is_the_same_in_pieces(family: Pair) -> None:
    ids = tokens(300, seed=7)
    assert (whole(family.ours, ids) - theirs(family.theirs, ids)).abs().max() < _CLOSE


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_as_near_to_float32_as_transformers_is(family: Pair, dtype: str) -> None:
    ids = tokens(60)
    exact = theirs(family.theirs, ids)
    ours = LlamaModel.load(family.directory, dtype=dtype)
    error = (whole(ours, ids) - exact).square().mean().sqrt()
    half = getattr(torch, dtype)
    their_error = (theirs(copy.deepcopy(family.theirs).to(half), ids) - exact).square().mean().sqrt()
    assert ours.dtype == half
    assert error < 1.2 * their_error + 1e-3


def test_auto_takes_the_checkpoints_dtype_where_the_cpu_has_instructions_for_it_else_float32(tmp_path: Path) -> None:
    ids, flags = tokens(20), set(Path("/proc/cpuinfo").read_text().split())
    pairs = torch.bfloat16 if multiplies_bfloat16() or "bf16" in flags else torch.float32
    for name, dtype in (("bfloat16", pairs), ("float16", torch.float32)):
        model = save("llama 3", tmp_path / name, getattr(torch, name))
        ours = LlamaModel.load(tmp_path / name)
        assert ours.dtype == dtype or ours.compiled is not None
        assert (whole(ours, ids) - theirs(model.float(), ids)).abs().mean() < 0.05


def test_a_checkpoint_in_shards_is_the_same_model(tmp_path: Path) -> None:
    model = save("qwen 3", tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    ids = tokens(30)
    assert (whole(LlamaModel.load(tmp_path), ids) - theirs(model, ids)).abs().max() < _CLOSE


def test_a_position_beyond_the_context_is_an_error_and_the_last_one_is_not(family: Pair) -> None:
    pool, pages = family.ours.new_pool(CONTEXT // PAGE_SIZE + 1, PAGE_SIZE), range(CONTEXT // PAGE_SIZE + 1)
    step(family.ours, pool, [(tokens(1), SequenceRows(1, CONTEXT - 1, pages))])
    with pytest.raises(IndexError):
        step(family.ours, pool, [(tokens(1), SequenceRows(1, CONTEXT, pages))])
