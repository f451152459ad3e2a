"""A draft model of another vocabulary guesses through a table, and only through one."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from outrider.engine.sampling import Sampling
from outrider.engine.speculation import DrafterContext, DrafterError, DraftTree, Opening
from outrider.engine.speculation.drafters.model_drafter import ModelDrafter
from outrider.engine.speculation.drafters.vocabulary import VocabularyMap
from outrider.engine.text import Tokenizer
from outrider.kernels.race_sample import Truncation
from safetensors.torch import load_file, save_file

from tests.toy_model import save_toy

VOCABULARY = 50


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_toy(tmp_path_factory.mktemp("models") / "target", VOCABULARY)


@pytest.fixture(scope="module")
def table() -> list[int]:
    return random.Random(3).sample(range(VOCABULARY), VOCABULARY)


@pytest.fixture(scope="module")
def renamed(target: Path, table: list[int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The target's own model, but each token has another id."""
    directory = save_toy(tmp_path_factory.mktemp("models") / "renamed", VOCABULARY)
    tensors = load_file(target / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = tensors[name][table].contiguous()
    save_file(tensors, directory / "model.safetensors")
    words = json.loads((directory / "tokenizer.json").read_text())
    words["model"]["vocab"] = {f"<{target_id}>": own for own, target_id in enumerate(table)}
    (directory / "tokenizer.json").write_text(json.dumps(words))
    return directory


def trees(target: Path, draft: Path, sampling: Sampling, **options: object) -> DraftTree:
    fingerprint = Tokenizer.load(target).fingerprint
    made = ModelDrafter(DrafterContext(fingerprint, VOCABULARY, 256, draft, dtype="float32", options=options))
    made.open(1, Opening([3, 1, 4, 1, 5, 9, 2, 6], sampling, 24))
    last: dict[int, DraftTree] = {}
    while improved := made.draft():
        last |= dict(improved)
    return last[1]


@pytest.mark.parametrize("sampling", [Sampling(0.0), Sampling(1.0, Truncation(top_k=20), 5)])
def test_renamed_tokens_make_no_difference(
    target: Path, renamed: Path, table: list[int], tmp_path: Path, sampling: Sampling
) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps(table))
    direct = trees(target, target, sampling)
    for given in (table, str(path)):
        mapped = trees(target, renamed, sampling, vocabulary_map=given)
        assert (list(mapped.tokens), list(mapped.parents)) == (list(direct.tokens), list(direct.parents))


def test_another_vocabulary_without_a_table_is_refused(target: Path, renamed: Path) -> None:
    with pytest.raises(DrafterError, match="vocabulary_map"):
        trees(target, renamed, Sampling(0.0))


def test_tokens_that_the_drafter_lacks_are_never_guessed() -> None:
    table = VocabularyMap.load([4, -1, 2], 3, 6)
    spread = table.spread(torch.tensor([[1.0, 2.0, 3.0]]))
    assert spread.tolist() == [[float("-inf"), float("-inf"), 3.0, float("-inf"), 1.0, float("-inf")]]
    assert table.read([2, 4, 5, 0]) == [2, 0, 0, 0]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([1, 2], "has 2 entries; the draft model has 3"),
        ([1, 2, 6], "below 6"),
        ([1, 1, 2], "at most once"),
        ([-1, -1, -1], "must lead to ids"),
        ([0, -2, 1], "or to -1"),
        ("nowhere.json", "cannot be read"),
        ({"0": 1}, "must be a list"),
        ([True, 1, 2], "must be a list"),
    ],
)
def test_a_table_that_is_none_is_refused(given: object, why: str) -> None:
    with pytest.raises(DrafterError, match=why):
        VocabularyMap.load(given, 3, 6)
