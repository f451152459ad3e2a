"""Heads in published layouts compute what the equations say, can be trained, and are written as they are read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from outrider.engine.errors import ModelError
from outrider.engine.models import pocket
from outrider.engine.models.llama import LlamaModel
from outrider.engine.speculation.heads.block import BlockHead
from outrider.engine.speculation.heads.decoder import Attend, attend_masked
from outrider.engine.speculation.heads.eagle import EagleHead
from outrider.engine.speculation.heads.files import load_head, save_head
from outrider.engine.store import drafter_of
from outrider.native.decoder import NativeLinear
from torch import Tensor

from tests.engine.speculation.heads.plain import PlainBlock, PlainEagle
from tests.engine.speculation.heads.published import BLOCKS, EAGLES, TARGET, VOCABULARY, Published
from tests.toy_model import save_toy

LENGTH = 7
Make = Callable[[], Published]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> LlamaModel:
    return LlamaModel.load(save_toy(tmp_path_factory.mktemp("models") / "toy", VOCABULARY), dtype="float32")


@pytest.fixture
def text() -> tuple[Tensor, Tensor]:
    """Tokens, and states of all of them for three layers."""
    dice = torch.Generator().manual_seed(9)
    return torch.randint(VOCABULARY, (LENGTH,), generator=dice), torch.randn(LENGTH, 3, TARGET, generator=dice)


def load(directory: Path, target: LlamaModel) -> EagleHead | BlockHead:
    output = lambda rows: target.logits(rows.flatten(0, -2)).view(*rows.shape[:-1], -1)  # noqa: E731
    embed = lambda ids: target.embed(ids.flatten()).view(*ids.shape, -1)  # noqa: E731
    return load_head(directory, target.config, embed=embed, output=output)[0]


def masked(mask: Tensor, contexts: list[tuple[Tensor, Tensor]] | None = None) -> Attend:
    """Attention by a mask over the rows, behind the keys of a context if there is one."""

    def attend(index: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if contexts is not None:
            keys, values = contexts[index]
            key, value = torch.cat([keys, key], dim=-3), torch.cat([values, value], dim=-3)
        return attend_masked(query, key, value, mask)

    return attend


close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", EAGLES.values(), ids=EAGLES)
def test_an_eagle_head_scores_as_the_equations_say(
    target: LlamaModel, tmp_path: Path, text: tuple[Tensor, Tensor], make: Make
) -> None:
    published, (ids, states) = make(), text
    head = load(published.save(tmp_path), target)
    assert isinstance(head, EagleHead)
    assert head.shape.target_layers == published.layers
    plain, count = PlainEagle(published, target.embed, target.logits), LENGTH - 1
    causal = torch.ones(count, count, dtype=torch.bool).tril()
    found = head.run(ids[1:], head.features(states[:-1]), torch.arange(count), masked(causal))
    expected = plain.states(ids[1:].tolist(), [plain.features(row) for row in states[:-1]])
    close(found, torch.stack(expected))
    close(head.scores(found[-1:])[0], plain.after(ids.tolist(), states[:-1], []))


@pytest.mark.parametrize("make", BLOCKS.values(), ids=BLOCKS)
def test_a_block_head_scores_as_the_equations_say(
    target: LlamaModel, tmp_path: Path, text: tuple[Tensor, Tensor], make: Make
) -> None:
    published, (ids, states) = make(), (text[0], text[1][:, :2])
    head = load(published.save(tmp_path), target)
    assert isinstance(head, BlockHead)
    assert head.shape.target_layers == published.layers
    plain, place = PlainBlock(published, target.embed, target.logits), LENGTH - 1
    block = head.block(ids[place])
    contexts = head.context_keys(head.context(states[:place]), torch.arange(place))
    everything = torch.ones(len(block), place + len(block), dtype=torch.bool)
    rows = head.guessing(head.run(block, torch.arange(place, place + len(block)), masked(everything, contexts)))
    anchor = int(ids[place])
    expected = plain.states(anchor, place, states[:place])
    close(rows, torch.stack(expected))
    guesses = [3, 1, 4, 1][: len(rows)]
    previous = torch.tensor([anchor, *guesses][: len(rows)])
    scores = head.output(rows) + (head.correct_block(previous, rows) if head.shape.markov_rank else 0)
    close(scores, torch.stack([plain.scores(expected, anchor, guesses[:place]) for place in range(len(rows))]))
    if head.shape.confidence:
        odds = [plain.confidence(expected, anchor, guesses[:place]) for place in range(len(rows))]
        close(head.confidence(previous, rows).sigmoid(), torch.tensor(odds))


@pytest.mark.parametrize("make", [*EAGLES.values(), *BLOCKS.values()], ids=[*EAGLES, *BLOCKS])
def test_a_head_is_read_as_it_was_written(target: LlamaModel, tmp_path: Path, make: Make) -> None:
    head = load(make().save(tmp_path / "a"), target)
    save_head(tmp_path / "b", head)
    again = load(tmp_path / "b", target)
    assert again.shape == head.shape
    assert again.tensors.keys() == head.tensors.keys()
    assert all(torch.equal(again.tensors[name], tensor) for name, tensor in head.tensors.items())
    assert (again.targets is None) == (head.targets is None)
    assert head.targets is None or torch.equal(again.targets, head.targets)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [*EAGLES.values(), *BLOCKS.values()], ids=[*EAGLES, *BLOCKS])
def test_a_published_head_is_not_taken_for_a_draft_model(tmp_path: Path, make: Make) -> None:
    assert drafter_of(make().save(tmp_path)) == "head"


def test_draft_models_and_medusa_heads_have_drafters_of_their_own(tmp_path: Path) -> None:
    drafters = [drafter_of(pocket.directory(each)) for each in ("target", "draft", "medusa")]
    assert drafters == ["model", "model", "medusa"]
    with pytest.raises(ModelError, match=r"config\.json"):
        drafter_of(tmp_path)
    for config, known in (("[]", False), ("{", False), ('{"architectures": 7}', True), ("{}", True)):
        (tmp_path / "config.json").write_text(config)
        with nullcontext() if known else pytest.raises(ModelError, match=r"config\.json"):
            assert drafter_of(tmp_path) == "model"


def loss_of(head: EagleHead | BlockHead, ids: Tensor, states: Tensor) -> Tensor:
    """A loss over a batch of two sequences; for blocks, of two anchors each."""
    ids, states = torch.stack([ids, ids.flip(0)]), torch.stack([states, states.flip(0)])
    if isinstance(head, EagleHead):
        count = LENGTH - 1
        causal = torch.ones(count, count, dtype=torch.bool).tril()
        found = head.run(ids[:, 1:], head.features(states[:, :-1]), torch.arange(count), masked(causal))
        return head.scores(found).logsumexp(-1).mean()
    size, anchors = head.shape.block_size, torch.tensor([2, 5])
    blocks = head.block(ids[:, anchors])
    positions = (anchors[:, None] + torch.arange(size)).flatten()
    before = torch.arange(LENGTH) < anchors.repeat_interleave(size)[:, None]
    own = torch.block_diag(*[torch.ones(size, size)] * 2).bool()
    contexts = head.context_keys(head.context(states[:, :, : len(head.shape.target_layers)]), torch.arange(LENGTH))
    rows = head.run(blocks.flatten(1), positions, masked(torch.cat([before, own], dim=1), contexts))
    rows = head.guessing(rows.view(2, 2, size, -1))
    previous = ids[:, :2, None].expand(2, 2, head.shape.guesses)
    scores = head.output(rows) + (head.correct_block(previous, rows) if head.shape.markov_rank else 0)
    confidence = head.confidence(previous, rows).mean() if head.shape.confidence else torch.tensor(0.0)
    return scores.logsumexp(-1).mean() + confidence


@pytest.mark.parametrize("make", [*EAGLES.values(), *BLOCKS.values()], ids=[*EAGLES, *BLOCKS])
def test_gradients_reach_every_tensor(
    target: LlamaModel, tmp_path: Path, text: tuple[Tensor, Tensor], make: Make
) -> None:
    head = load(make().save(tmp_path), target)
    table, output = torch.randn(VOCABULARY, TARGET), torch.randn(VOCABULARY, TARGET)
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in head.tensors.items()}
    shape = replace(head.shape)
    trained = type(head)(shape, leaves, lambda i: table[i], lambda r: r @ output.T, head.targets)  # type: ignore[arg-type]
    loss_of(trained, *text).backward()
    unreached = [name for name, tensor in leaves.items() if tensor.grad is None or not tensor.grad.abs().sum()]
    assert not unreached


@pytest.mark.parametrize("inputs", [48, 40])
def test_a_weight_beside_the_target_multiplies_as_by_torch(target: LlamaModel, inputs: int) -> None:
    weight, rows = torch.randn(70, inputs), torch.randn(5, inputs)
    linear = target.beside(weight)
    assert isinstance(linear, NativeLinear) == (target.compiled is not None and not inputs % 16)
    close(linear(rows), rows @ weight.T)
