"""The recipe from end to end on a tiny corpus, and its parts."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from outrider.engine.models import pocket
from outrider.training.pocket import corpus, data, export, quality, sampled, train
from outrider.training.pocket.checkpoint import read_clock
from outrider.training.pocket.net import Llama, Shape
from outrider.training.pocket.optim import orthogonalise
from outrider.training.pocket.pipeline import Pipeline, Recipe
from outrider.training.pocket.tasks import BoundTask, NextTokenTask, load
from safetensors.torch import load_file

TINY = Shape(vocab=300, width=32, layers=2, heads=2, kv_heads=1, head_dim=16, inner=48, context=64)
SMALL = replace(TINY, width=16, layers=1, heads=1)
PLAN = train.Plan(
    minutes=1, steps=10, batch=64, micro=32, length=32, long_length=64, warmup=2, save_minutes=0, check_tokens=64
)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("library")
    for n in range(120):
        body = "".join(f"def function_{n}_{i}(first, second_{n}):\n    return {n} * first + {i}\n\n" for i in range(6))
        file = root / ("test" if n % 5 == 0 else "package") / f"module_{n}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f'"""Module {n}."""\n\n{body}')
    return root


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("streams")
    ids = torch.randint(0, 300, (2000,), generator=torch.Generator().manual_seed(0)).numpy().astype("u2")
    data.write([ids], folder / "train.bin")
    data.write([ids[:200]], folder / "heldout.bin")
    return folder / "train.bin", folder / "heldout.bin"


class Dying:
    """A bound task that computes its loss with gradients a limited number of times."""

    def __init__(self, bound: BoundTask, calls: int) -> None:
        self.module, self.bound, self.left = bound.module, bound, calls

    def loss(self, tokens: torch.Tensor) -> torch.Tensor:
        self.left -= torch.is_grad_enabled()
        if self.left < 0:
            raise KeyboardInterrupt
        return self.bound.loss(tokens)


@dataclass(frozen=True)
class Interrupted(NextTokenTask):
    """A task that dies at a given call of its loss."""

    calls: int = 9

    def build(self, device: torch.device, dtype: torch.dtype, seed: int) -> BoundTask:
        return Dying(super().build(device, dtype, seed), self.calls)


def test_the_recipe_runs_end_to_end_and_ships_verifiable_folders(library: Path, tmp_path: Path) -> None:
    recipe = Recipe(
        tmp_path, library, PLAN, PLAN, PLAN, shape=TINY, draft_shape=SMALL, library_repeats=2, sampled_tokens=1
    )
    weights = Pipeline(recipe).run()
    for name in ("target", "draft", "medusa"):
        pocket.verify(weights / name)
    text = (weights / "MODEL_CARD.md").read_text()
    assert "| target |" in text
    assert "{" not in text.replace("{head}", "")
    assert (weights / "heldout.json").exists()


def test_the_targets_own_text_goes_on_as_the_target_would(streams: tuple[Path, Path], tmp_path: Path) -> None:
    stream = tmp_path / "stream.bin"
    data.write([torch.arange(6000).remainder(17).numpy().astype("u2")], stream)
    train.run(NextTokenTask(TINY), replace(PLAN, steps=150), stream, stream, tmp_path / "target")
    export.decoder(tmp_path / "target" / "weights.safetensors", TINY, pocket.directory("target"), 16, tmp_path / "out")
    sampled.write(tmp_path / "out", streams[0], tmp_path / "own.bin", 1, 48, 0, together=4)
    own = torch.from_numpy(data.read(tmp_path / "own.bin").astype("i8")).view(4, 48)
    given = data.Windows(data.read(streams[0]), 0).take(0, 4, 48)[:, :48]
    assert torch.equal(own[:, :6], given[:, :6])
    target = load(tmp_path / "target" / "weights.safetensors", TINY, torch.device("cpu"), torch.float32)
    own_nats, given_nats = (quality.nats(target, text)[:, 20:].mean() for text in (own, given))
    assert own_nats < 0.7 * given_nats


def test_an_interrupted_run_resumes_to_the_same_weights(streams: tuple[Path, Path], tmp_path: Path) -> None:
    train.run(NextTokenTask(TINY), PLAN, *streams, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train.run(Interrupted(TINY), PLAN, *streams, tmp_path / "halves")
    assert 0 < read_clock(tmp_path / "halves" / "checkpoint.safetensors").step < PLAN.steps
    train.run(NextTokenTask(TINY), PLAN, *streams, tmp_path / "halves")
    whole, halves = (load_file(tmp_path / name / "weights.safetensors") for name in ("whole", "halves"))
    assert whole.keys() == halves.keys()
    assert all(torch.equal(whole[name], halves[name]) for name in whole)


def test_two_workers_learn_as_one_does(streams: tuple[Path, Path], tmp_path: Path) -> None:
    plan = replace(PLAN, steps=3)
    train.run(NextTokenTask(TINY), plan, *streams, tmp_path / "one")
    train.run(NextTokenTask(TINY), replace(plan, workers=2), *streams, tmp_path / "two")
    one, two = (load_file(tmp_path / name / "weights.safetensors") for name in ("one", "two"))
    for name in one:
        torch.testing.assert_close(one[name], two[name], atol=2e-2, rtol=0.0)


def test_training_lowers_the_held_out_loss(tmp_path: Path) -> None:
    text = torch.arange(2000).remainder(17).numpy().astype("u2")
    data.write([text], tmp_path / "train.bin")
    data.write([text[:200]], tmp_path / "heldout.bin")
    train.run(NextTokenTask(SMALL), PLAN, tmp_path / "train.bin", tmp_path / "heldout.bin", tmp_path)
    losses = [json.loads(line)["heldout"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0] - 0.1


def test_the_training_network_is_transformers_llama() -> None:
    transformers = pytest.importorskip("transformers")
    ours = Llama(TINY)
    for p in ours.parameters():
        torch.nn.init.normal_(p, 0.0, 0.2, generator=torch.Generator().manual_seed(p.numel()))
    config = transformers.LlamaConfig(
        vocab_size=300, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, rms_norm_eps=1e-5, tie_word_embeddings=True,
    )  # fmt: skip
    theirs = transformers.LlamaForCausalLM(config).eval()
    theirs.load_state_dict(ours.state_dict(), strict=False)
    ids = torch.arange(300)[None]
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), theirs(ids).logits, atol=1e-4, rtol=1e-4)


def test_orthogonalised_matrices_have_singular_values_near_one() -> None:
    g = torch.randn(2, 48, 32, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalise(g).float())
    assert float(values.min()) > 0.5
    assert float(values.max()) < 1.4


def test_held_out_files_are_in_no_training_text(library: Path) -> None:
    split = corpus.gather(library, percent=20)
    assert split.library
    assert split.tests
    assert split.heldout
    kept = {d.path for d in split.train}
    assert kept.isdisjoint(d.path for d in split.heldout + split.dropped)
    assert not any(d.is_test for d in split.heldout)


def test_a_held_out_copy_of_a_learnt_file_is_dropped(library: Path) -> None:
    held = corpus.gather(library, percent=20).heldout[0]
    copy = library / "test" / "copy.py"
    copy.write_text(held.text)
    try:
        split = corpus.gather(library, percent=20)
    finally:
        copy.unlink()
    assert held in split.dropped
    assert held not in split.heldout


def test_windows_continue_where_they_stopped_and_differ_by_epoch(streams: tuple[Path, Path]) -> None:
    stream = data.read(streams[0])
    first, again = data.Windows(stream, 1), data.Windows(stream, 1)
    together = first.take(0, 4, 32)
    assert torch.equal(together[2:], again.take(64, 2, 32))
    assert not torch.equal(together, first.take(len(stream), 4, 32))


def test_a_folder_without_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no Python source"):
        corpus.gather(tmp_path)
