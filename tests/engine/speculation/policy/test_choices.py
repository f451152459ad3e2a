"""Drafters and rules that an operator may choose, and settings that are refused at start."""

from __future__ import annotations

from typing import Any

import pytest
from outrider.engine.errors import SettingsError
from outrider.engine.models import pocket
from outrider.engine.models.llama import LlamaModel
from outrider.engine.sampling import Sampling
from outrider.engine.settings import EngineSettings
from outrider.engine.speculation import Opening
from outrider.engine.speculation.policy.plugins import drafter_names, make_drafters, make_rule, remote_names
from outrider.engine.text import Tokenizer

from tests.toy_model import save_toy


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> LlamaModel:
    return LlamaModel.load(save_toy(tmp_path_factory.mktemp("models") / "toy", 50), dtype="float32")


@pytest.mark.parametrize(
    ("drafters", "options", "why"),
    [
        (["ngram"], {"medusa": {"children": 2}}, "options has settings for medusa, which drafters does not list"),
        (["nobody"], {}, "no 'nobody' among outrider.drafters"),
        (["medusa"], {}, "needs heads"),
        (["medusa"], {"medusa": {"model": 3}}, "options.medusa.model must be text that names a model, not 3"),
        (["medusa"], {"medusa": {"model": "/nowhere"}}, "there is no model in /nowhere"),
        (["medusa"], {"medusa": {"model": "pocket"}}, "hidden_size is 256; it must be the target's, 32"),
        (["suffix"], {"suffix": {"colour": 1}}, "colour"),
        (["ngram"], {"ngram": {"most": "few"}}, "most is 'few'; it must be a whole number"),
        (["model"], {"model": {"model": "pocket", "rows": 2.5}}, "rows is 2.5; it must be a whole number"),
        (
            ["model"],
            {"model": {"model": "pocket", "children": "four"}},
            "children is 'four'; it must be a whole number",
        ),
        (["model"], {"model": {"model": "pocket", "least_value": "low"}}, "least_value is 'low'; it must be a number"),
        (["model"], {"model": {"model": "/nowhere"}}, "/nowhere"),
        (["model"], {"model": {"model": "pocket"}}, "vocabulary .* is not the target's"),
    ],
)
def test_a_drafter_that_cannot_serve_is_refused(
    toy: LlamaModel, drafters: list[str], options: dict[str, dict[str, object]], why: str
) -> None:
    with pytest.raises(SettingsError, match=why):
        make_drafters(EngineSettings(model="/toy", drafters=drafters, options=options), "v", toy)


@pytest.mark.parametrize(
    ("rule", "options", "why"),
    [
        ("majority", {}, "no 'majority' among outrider.acceptance"),
        ("typical", {"epsilon": 0}, "epsilon must be above 0"),
        ("race", {"epsilon": 1}, "race rule takes no options, not epsilon"),
    ],
)
def test_a_rule_that_cannot_work_is_refused(rule: str, options: dict[str, object], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        make_rule(EngineSettings(acceptance=rule, acceptance_options=options))


def test_drafters_are_made_with_their_options(toy: LlamaModel) -> None:
    settings = EngineSettings(model="/toy", drafters=["suffix", "ngram"], options={"suffix": {"nodes": 3}})
    suffix, ngram = make_drafters(settings, "v", toy)
    assert (suffix.name, ngram.name) == ("suffix", "ngram")
    suffix.open(1, Opening([1, 2, 3, 4, 5, 6] * 2, Sampling(0.0), 9))
    assert [len(tree.tokens) for _, tree in suffix.draft()] == [3]


def test_the_shipped_target_has_the_shipped_heads_and_draft() -> None:
    directory = pocket.directory("target")
    model, vocabulary = LlamaModel.load(directory, dtype="float32"), Tokenizer.load(directory).fingerprint
    settings = EngineSettings(dtype="float32", drafters=["medusa", "model"], options={"medusa": {"nodes": 8}})
    medusa, draft = make_drafters(settings, vocabulary, model)
    assert medusa.heads.count == 4
    draft.open(1, Opening([1, 2, 3], Sampling(0.0), 9))
    assert draft.draft()[0][1].parents.count(-1) > 1


def test_the_race_is_the_rule_unless_another_is_asked_for() -> None:
    rule = make_rule(EngineSettings())
    assert (rule.name, rule.lossy) == ("race", False)


@pytest.mark.parametrize(
    ("drafters", "more", "names"),
    [
        (["auto"], {}, ["model", "ngram", "prediction", "suffix"]),
        (["auto", "-suffix"], {}, ["model", "ngram", "prediction"]),
        (["-model", "auto"], {}, ["ngram", "prediction", "suffix"]),
        (["random", "auto"], {"model": "/toy"}, ["random", "ngram", "prediction", "suffix"]),
        (["auto"], {"device": "cuda"}, ["ngram", "prediction", "suffix"]),
        (["auto"], {"device": "cuda:1", "options": {"model": {"model": "pocket"}}}, ["ngram", "prediction", "suffix"]),
        (
            ["auto"],
            {"model": "/toy", "options": {"model": {"model": "pocket"}}},
            ["model", "ngram", "prediction", "suffix"],
        ),
        (
            ["auto"],
            {"device": "cuda", "options": {"head": {"model": "/head"}}},
            ["head", "ngram", "prediction", "suffix"],
        ),
    ],
)
def test_auto_means_the_drafters_that_say_so(drafters: list[str], more: dict[str, Any], names: list[str]) -> None:
    assert drafter_names(EngineSettings(drafters=drafters, **more)) == names


def test_requests_may_name_drafters_that_a_proposer_may_bring() -> None:
    assert {"model", "ngram", "random", "suffix"} <= set(remote_names())
    assert "medusa" not in remote_names()
