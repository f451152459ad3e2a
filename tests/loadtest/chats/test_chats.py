"""Chat requests of every kind, and their measurement on the shipped pair and, with ``TEST_MODEL``, on a real model."""

from __future__ import annotations

import argparse
import itertools
import os
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from llguidance import LLMatcher
from outrider.gateway.api.openai.bodies import read_chat
from outrider.loadtest.chats import modes
from outrider.loadtest.chats.chat_turns import ChatTurn, Steps
from outrider.loadtest.chats.figures import best_fixed, publish
from outrider.loadtest.experiments import matrix
from outrider.loadtest.load.turns import Case, Matrix
from outrider.measure.chats.library import PARTS, NoveltyFilter, files
from outrider.measure.chats.supply import KINDS, MIXED, TEMPERATURES, ChatSupply, endless
from outrider.measure.load.arrivals import Sample
from outrider.measure.load.client import Reply
from outrider.measure.load.prompts import PromptsError
from outrider.measure.load.summary import summarize

REAL = os.environ.get("TEST_MODEL")
CASE, MIX = Case("edit", 0.7, 1), Case(MIXED, None, 1)
MANY = 300


def shingles(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return set(zip(*(words[start:] for start in range(4)), strict=False))


@pytest.mark.parametrize("kind", ["edit", "code", "extract"])
def test_several_hundred_requests_of_a_kind_are_no_copies_of_each_other(kind: str) -> None:
    made = [shingles(each.text) for each in ChatSupply().take(kind, MANY)]
    alike = [(a, b) for a, b in itertools.combinations(made, 2) if len(a & b) > 0.6 * min(len(a), len(b))]
    assert len(alike) <= MANY // 100, alike[:3]


def test_several_hundred_everyday_questions_differ() -> None:
    assert len({each.text for each in ChatSupply().take("chat", MANY)}) == MANY


def test_each_question_about_a_long_context_is_about_another_passage() -> None:
    requests = ChatSupply().take("rag", 60)
    questions = Counter(each.text.rsplit("\n\n", 1)[1] for each in requests)
    assert max(questions.values()) == 1
    assert all(8_000 <= len(each.text) <= 28_000 for each in requests)
    short = ChatSupply(context=(200, 300)).take("rag", 10)
    assert max(len(each.text) for each in short) < 4_000


def test_an_endless_mix_has_every_kind_and_repeats_no_prompt() -> None:
    made = list(itertools.islice(endless(MIXED, seed=1, max_tokens=8), 15))
    assert Counter(each.kind for each in made) == dict.fromkeys(KINDS, 3)
    many = Counter(each.text for each in itertools.islice(endless("code", seed=1), 1500))
    assert max(many.values()) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_every_request_is_one_that_the_gateway_honours(kind: str) -> None:
    for request in ChatSupply().take(kind, 20, 0.7):
        body = msgspec.json.encode(request.body("off"))
        generation = read_chat(body).generation()
        assert (generation.sampling.temperature, generation.sampling.seed) == (0.7, request.seed)
        if request.schema is not None:
            assert not LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(request.schema))


def test_modes_with_predictions_predict_the_old_text_or_that_of_another_request() -> None:
    chats = ChatSupply().take("edit", 3, 0.0)
    assert all(each.old in each.text and not each.prediction for each in chats)
    predicted = {name: modes.MODES[name].predicted(chats) for name in ("on", "prediction", "misprediction")}
    assert predicted["on"] == chats
    assert [each.prediction for each in predicted["prediction"]] == [each.old for each in chats]
    assert [each.prediction for each in predicted["misprediction"]] == [each.old for each in (*chats[1:], chats[0])]
    body = read_chat(msgspec.json.encode(predicted["prediction"][0].body({})))
    assert body.generation().prediction == chats[0].old
    assert read_chat(msgspec.json.encode(chats[0].body({}))).generation().prediction == ""


def test_no_file_of_the_library_is_used_by_two_kinds() -> None:
    used = [set(files(kind)) for kind in PARTS]
    assert all(used)
    assert all(not a & b for a, b in itertools.combinations(used, 2))


def test_a_text_with_mostly_known_lines_is_not_new() -> None:
    is_new = NoveltyFilter()
    assert is_new("first line of code\nsecond line of code\nthird line of code")
    assert not is_new("first line of code\nsecond line of code\nanother line of code")
    assert is_new("first line of code\none more line of code\nanother line of code")


def test_a_supply_is_the_same_for_the_same_seed_and_ends_with_an_error() -> None:
    first, same, other = (ChatSupply(seed).take("edit", 20) for seed in (1, 1, 2))
    assert first == same != other
    with pytest.raises(PromptsError, match="too few requests of chat"):
        ChatSupply().take("chat", 100_000)


def test_mixed_requests_are_of_all_kinds_and_temperatures_in_random_order() -> None:
    mixed = ChatSupply().take(MIXED, 50)
    assert Counter(each.kind for each in mixed) == dict.fromkeys(KINDS, 10)
    assert {each.temperature for each in mixed} == set(TEMPERATURES)
    assert [each.kind for each in mixed] != list(itertools.islice(itertools.cycle(KINDS), 50))


def turn(case: Case, mode: str, repeat: int, speed: float) -> ChatTurn:
    reply = Reply([0.0, 100 / speed], 1, 0, 100, accepted_tokens=0, rejected_tokens=0, steps=100)
    return ChatTurn(case, mode, repeat, summarize([Sample(0.0, reply)]), {"edit": Steps(100, 50)})


def test_regret_is_to_the_mode_that_was_best_in_hindsight_and_controls_stand_beside_ratios(tmp_path, capsys) -> None:
    speeds = {"off": (100, 100, 100), "control": (90, 100, 120), "always": (200, 300, 200), "on": (180, 270, 180)}
    turns = [turn(MIX, mode, number, speed) for mode, row in speeds.items() for number, speed in enumerate(row)]
    assert best_fixed(Matrix(turns), MIX) == "always"
    assert best_fixed(Matrix([*turns, *(turn(MIX, "on", number, 900) for number in range(3))]), MIX) == "always"
    publish(turns, {}, tmp_path)
    report, shown = msgspec.json.decode((tmp_path / "matrix.json").read_bytes()), capsys.readouterr().out
    assert "1.80 (1.80 to 2.70), control 1.00 (0.90 to 1.20), regret to always 10.0%" in shown
    assert {threshold["what"]: threshold["met"] for threshold in report["thresholds"]} == {
        "on / off, mixed, 1 at a time": True,
        "on / the best fixed choice (always), mixed, 1 at a time": False,
    }


def test_only_modes_that_guess_get_the_draft_model_and_always_is_a_program() -> None:
    options = argparse.Namespace(model=Path("/m"), draft=Path("/d"), set=["verifier.pages=9"])
    shared, pages = {"proposers": None, "model": Path("/m"), "program": None}, {"verifier.pages": "9"}
    assert modes.mesh_arguments(options, "off") == {**shared, "draft": None, "settings": pages}
    assert modes.mesh_arguments(options, "on") == {**shared, "draft": Path("/d"), "settings": pages}
    assert modes.mesh_arguments(options, "always")["program"] == "outrider.benches.verifier.always"
    options.model = Path("pocket")
    assert modes.mesh_arguments(options, "on")["model"] is None


SMALL = ["--concurrency", "1", "--requests", "2", "--repeats", "1"]


def measure(out: Path, *arguments: str) -> dict:
    assert matrix.main([*arguments, *SMALL, "--out", str(out)]) == 0
    (report,) = (msgspec.json.decode(path.read_bytes()) for path in out.glob("*.json"))
    return report


def test_the_shipped_pair_answers_the_same_edits_in_every_mode(tmp_path) -> None:
    arguments = ["--model", "pocket", "--max-tokens", "16", "--workloads", "edit", "--temperatures", "0.7"]
    report = measure(tmp_path, *arguments, "--modes", "off", "on")
    off, on = report["turns"]
    assert (off["mode"], on["mode"]) == ("off", "on")[:: 1 if off["mode"] == "off" else -1]
    tokens = [each["kinds"]["edit"]["tokens"] for each in report["turns"]]
    assert tokens[0] == tokens[1] > 0
    assert {each["kinds"]["edit"]["steps"] for each in report["turns"] if each["mode"] == "off"} == {tokens[0]}


@pytest.mark.skipif(not REAL, reason="TEST_MODEL names no folder of a real model")
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_real_model_answers_edits_in_fewer_steps_than_tokens(tmp_path) -> None:
    report = measure(tmp_path / "edits", "--model", str(REAL), "--workloads", "edit", "--temperatures", "0")
    steps = {each["mode"]: each["kinds"]["edit"] for each in report["turns"]}
    assert steps["off"]["tokens"] == steps["on"]["tokens"] == steps["off"]["steps"] > steps["on"]["steps"]
