"""Medusa heads: published checkpoints load or are refused, and dice rank the guesses of trees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from outrider.engine.models import pocket
from outrider.engine.models.llama import LlamaModel
from outrider.engine.sampling import Sampling
from outrider.engine.speculation import DrafterContext, DrafterError, DraftTree, Opening
from outrider.engine.speculation.drafters.medusa_drafter import MedusaDrafter, likeliest
from outrider.engine.text import Tokenizer
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.philox import log_exponentials
from outrider.kernels.race_sample import Truncation, race_sample
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import linear, silu

from tests.toy_model import save_toy

VOCABULARY, HIDDEN, HEADS, LAYERS = 50, 32, 3, 2
UNSEEN = "class Window:\n    def __init__(self, size):\n        if size < 1:\n            raise ValueError('size')\n"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> LlamaModel:
    return LlamaModel.load(save_toy(tmp_path_factory.mktemp("models") / "toy", VOCABULARY), dtype="float32")


def published(tied: bool = False) -> dict[str, Tensor]:
    """Tensors under the names of the published checkpoints."""
    random = torch.Generator().manual_seed(3)
    tensors = {}
    for head in range(HEADS):
        for layer in range(LAYERS):
            tensors[f"{head}.{layer}.linear.weight"] = torch.randn(HIDDEN, HIDDEN, generator=random)
            tensors[f"{head}.{layer}.linear.bias"] = torch.randn(HIDDEN, generator=random)
        if not tied:
            tensors[f"{head}.{LAYERS}.weight"] = torch.randn(VOCABULARY, HIDDEN, generator=random)
    return tensors


def save(directory: Path, tensors: dict[str, Tensor], kind: str = "safetensors", **config: object) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    values = {"medusa_num_heads": HEADS, "medusa_num_layers": LAYERS, **config}
    (directory / "config.json").write_text(json.dumps(values))
    path = directory / f"medusa_lm_head.{kind}"
    if kind == "pt":
        torch.save(tensors, path)
    else:
        save_file(tensors, path)
    return directory


def drafter(directory: Path, target: LlamaModel, **options: object) -> MedusaDrafter:
    return MedusaDrafter(DrafterContext("v", target.config.vocab_size, 256, directory, options=options, target=target))


def by_hand(tensors: dict[str, Tensor], target: LlamaModel, hidden: Tensor) -> Tensor:
    scores = []
    for head in range(HEADS):
        x = hidden
        for layer in range(LAYERS):
            weight, bias = tensors[f"{head}.{layer}.linear.weight"], tensors[f"{head}.{layer}.linear.bias"]
            x = x + silu(linear(x, weight, bias))
        own = tensors.get(f"{head}.{LAYERS}.weight")
        scores.append(target.logits(x) if own is None else linear(x, own))
    return torch.stack(scores)


@pytest.mark.parametrize("kind", ["safetensors", "pt"])
@pytest.mark.parametrize("tied", [False, True])
def test_published_heads_load_and_score_as_in_the_paper(
    target: LlamaModel, tmp_path: Path, kind: str, tied: bool
) -> None:
    tensors = published(tied)
    made = drafter(save(tmp_path, tensors, kind), target)
    hidden = torch.randn(4, HIDDEN, generator=torch.Generator().manual_seed(1))
    assert made.traits.layers == (target.config.layers + 1,)
    torch.testing.assert_close(made.heads(hidden), by_hand(tensors, target, hidden), rtol=1e-4, atol=1e-4)


class Block(nn.Module):
    """A residual block under the published names."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        return x + silu(self.linear(x))


def test_a_published_checkpoint_guesses_as_the_trained_modules(target: LlamaModel, tmp_path: Path) -> None:
    torch.manual_seed(2)
    trained = nn.ModuleList(
        nn.Sequential(Block(), nn.Linear(HIDDEN, VOCABULARY, bias=False)) for _ in range(5)
    ).requires_grad_(False)
    config = {"medusa_num_heads": 2, "medusa_num_layers": 1, "base_model_name_or_path": "lmsys/vicuna-7b-v1.3"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    torch.save(trained.state_dict(), tmp_path / "medusa_lm_head.pt")
    made, hidden = drafter(tmp_path, target, children=1), torch.randn(HIDDEN)
    made.open(1, Opening([1, 2, 3, 4], Sampling(0.0), 63))
    made.see(1, 2, hidden[None, None])
    [(_, tree)] = made.draft()
    assert tree.tokens == [int(head(hidden).argmax()) for head in trained]
    assert tree.confidences[0] == pytest.approx(float(trained[0](hidden).softmax(-1).max()), rel=1e-4)


def test_a_config_that_names_fewer_heads_than_its_file_holds_gets_them_all(target: LlamaModel, tmp_path: Path) -> None:
    assert drafter(save(tmp_path, published(), medusa_num_heads=2), target).heads.count == HEADS


def test_heads_that_do_not_fit_are_refused_with_the_reason(target: LlamaModel, tmp_path: Path) -> None:
    good = published()
    narrow = {name: t[:31] if name == "1.0.linear.bias" else t for name, t in good.items()}
    words = {name: t[:49] if name.endswith(f".{LAYERS}.weight") else t for name, t in good.items()}
    lacking = {name: t for name, t in good.items() if name != "2.2.weight"}
    wrong = {
        "1.0.linear.bias has shape": save(tmp_path / "a", narrow),
        r"0.2.weight has shape \[49, 32\]": save(tmp_path / "b", words),
        "no tensor 2.2.weight": save(tmp_path / "c", lacking),
        "tensor extra that is no part": save(tmp_path / "d", good | {"extra": torch.ones(1)}),
        "holds 3 heads; its config.json asks for 4": save(tmp_path / "e", good, medusa_num_heads=4),
        "hidden_size is 64; it must be the target's, 32": save(tmp_path / "f", good, hidden_size=64),
        "vocab_size is 51": save(tmp_path / "g", good, vocab_size=51),
        "no Medusa heads": save(tmp_path / "h", {"fc.weight": torch.ones(1)}),
        "config.json cannot be read": tmp_path / "nowhere",
    }
    for why, directory in wrong.items():
        with pytest.raises(DrafterError, match=why):
            drafter(directory, target)


class Spy:
    """Runs code when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.path,)


def test_a_pickle_that_holds_more_than_tensors_is_refused_and_runs_nothing(target: LlamaModel, tmp_path: Path) -> None:
    directory = save(tmp_path, {}, "pt")
    torch.save({"0.0.linear.weight": Spy(tmp_path / "ran")}, directory / "medusa_lm_head.pt")
    with pytest.raises(DrafterError, match="cannot be read as plain tensors"):
        drafter(directory, target)
    assert not (tmp_path / "ran").exists()


def test_the_medusa_drafter_names_what_it_lacks(target: LlamaModel, tmp_path: Path) -> None:
    with pytest.raises(DrafterError, match="verifier only"):
        MedusaDrafter(DrafterContext("v", VOCABULARY, 256, tmp_path))
    with pytest.raises(DrafterError, match="option model"):
        MedusaDrafter(DrafterContext("v", VOCABULARY, 256, None, target=target))
    with pytest.raises(DrafterError, match="colour"):
        drafter(tmp_path, target, colour=1)


def best_path(tree: DraftTree) -> list[int]:
    path, parent = [], -1
    while children := [n for n, p in enumerate(tree.parents) if p == parent]:
        parent = max(children, key=lambda node: tree.confidences[node])
        path.append(tree.tokens[parent])
    return path


@pytest.mark.parametrize("sampling", [Sampling(0.0), Sampling(600.0, Truncation(top_k=20), 77)])
def test_each_head_guesses_by_the_dice_of_its_position(target: LlamaModel, tmp_path: Path, sampling: Sampling) -> None:
    tensors, hidden = published(), torch.randn(HIDDEN, generator=torch.Generator().manual_seed(5))
    made = drafter(save(tmp_path, tensors), target, nodes=20)
    made.open(4, Opening([1, 2, 3], sampling, 63))
    assert made.draft() == []
    made.commit(4, 3, [7, 8])
    made.see(4, 0, hidden[None, None])
    assert made.draft() == []
    made.see(4, 3, hidden[None, None])
    [(session, tree)] = made.draft()
    assert (session, tree.length, len(tree.tokens)) == (4, 5, 20)
    scores = sampling.shape(by_hand(tensors, target, hidden[None])[:, 0])
    rolls = log_exponentials(sampling.seed, torch.arange(5, 5 + HEADS), VOCABULARY)
    wanted = scores.argmax(-1) if sampling.greedy else race_sample(scores, rolls)
    assert best_path(tree) == wanted.tolist()
    assert made.draft() == []


def test_the_likeliest_paths_are_kept_and_none_twice() -> None:
    tree = likeliest(9, [[1, 2], [3, 4]], [[0.6, 0.3], [0.5, 0.4]], 5, "m")
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(tree.tokens, tree.parents, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    assert paths == [(1,), (2,), (1, 3), (1, 4), (2, 3)]
    assert len(likeliest(9, [[1, 2], [3, 4]], [[0.6, 0.3], [0.5, 0.4]], 60, "m").tokens) == 6


def test_the_shipped_heads_guess_the_shipped_target(tmp_path: Path) -> None:
    directory = pocket.directory("target")
    target = LlamaModel.load(directory, dtype="float32")
    ids = torch.tensor(Tokenizer.load(directory).encode(UNSEEN * 3))
    pages = -(-len(ids) // 16)
    batch = RaggedBatch.build([SequenceRows(len(ids), 0, list(range(pages)))], 16)
    hidden = target.forward(ids, batch, target.new_pool(pages, 16))
    heads = drafter(pocket.directory("medusa"), target).heads
    guesses, later = heads(hidden).argmax(-1), target.logits(hidden).argmax(-1)
    right = [float((guesses[i, : -1 - i] == later[1 + i :]).float().mean()) for i in range(heads.count)]
    assert heads.count == 4
    assert right[0] > 0.2, right
    assert not heads.own_outputs
