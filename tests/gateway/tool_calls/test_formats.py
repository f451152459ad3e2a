"""Each format of calls: what its template writes is read back, and is what its grammar allows."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from llguidance import LLMatcher
from outrider.engine.logits.grammar_definitions import definition, load_tokenizer, make_matcher
from outrider.gateway.request.generation import CallRules
from outrider.gateway.tool_calls.answer_reader import AnswerPiece, AnswerReader
from outrider.gateway.tool_calls.grammar import call_structure
from outrider.tokenizer.settings import TokenizerSettings
from outrider.wire.call_formats.call_format import CallFormat
from outrider.wire.calls import FORMATS, CallStyle, format_of
from outrider.wire.frames import Finish, Frame

from tests.gateway.tool_calls.formats import (
    PYTHON_REPR,
    Case,
    case,
    encoded,
    rendered,
    style,
    template,
    tokens,
    vocabulary,
)

EACH, FEW = range(50), range(8)
forms = pytest.mark.parametrize("form", list(FORMATS))


@cache
def _vocabulary(form: str) -> tuple[Any, CallStyle, Any]:
    made = vocabulary(form)
    ids = made.get_vocab_size(), [0]
    return made, style(form, made), load_tokenizer(made.to_str().encode(), *ids)


def _read(marks: CallStyle, rules: CallRules, parts: list[tuple[int, str]], sizes: list[int]) -> list[AnswerPiece]:
    """The pieces of an answer of ``parts``, tokens and their texts; the frames hold as many as ``sizes`` say."""
    reader = AnswerReader(marks, rules.names, rules.types)
    pieces: list[AnswerPiece] = []
    for size in sizes:
        frame, parts = parts[:size], parts[size:]
        pieces += reader.take(Frame("r", 0, [t for t, _ in frame], [text for _, text in frame], [""] * len(frame)))
    assert not parts
    pieces += reader.take(Frame("r", 0, [], [], [], Finish.STOP))
    assert reader.whole == any(piece.name for piece in pieces)
    return pieces


def _told(pieces: list[AnswerPiece]) -> tuple[str, list[tuple[str, str]]]:
    """The text, and the calls with their arguments."""
    calls: list[tuple[str, str]] = []
    for piece in pieces:
        if piece.name is not None:
            assert piece.place == len(calls)
            calls.append((piece.name, ""))
        if piece.place is not None:
            assert piece.place == len(calls) - 1
            calls[-1] = (calls[-1][0], calls[-1][1] + piece.text)
    return "".join(piece.text for piece in pieces if piece.place is None), calls


def _check(form: str, marks: CallStyle, wanted: Case, answer: str, rng: random.Random) -> None:
    parts, rules = tokens(answer, marks, rng), wanted.rules()
    text, calls = _told(_read(marks, rules, parts, [len(parts)]))
    assert text == wanted.text, answer
    assert [(name, json.loads(said)) for name, said in calls] == wanted.calls, answer
    assert [list(json.loads(said)) for _, said in calls] == [list(arguments) for _, arguments in wanted.calls]
    sizes: list[int] = []
    while sum(sizes) < len(parts):
        sizes.append(min(rng.randrange(1, 17), len(parts) - sum(sizes)))
    assert _told(_read(marks, rules, parts, sizes)) == (text, calls)


@forms
@pytest.mark.parametrize("marked", [True, False])
def test_what_the_template_writes_is_read_back_however_it_is_cut(form: str, marked: bool) -> None:
    marks = _vocabulary(form)[1] if marked else style(form)
    for seed in EACH:
        wanted = case(form, seed)
        _check(form, marks, wanted, rendered(form, wanted.text, wanted.calls), random.Random(seed))


def test_pythons_own_literals_are_read_back() -> None:
    for seed in EACH:
        wanted = case("pythonic", seed)
        _check(
            "pythonic",
            style("pythonic"),
            wanted,
            rendered("pythonic", "", wanted.calls, PYTHON_REPR),
            random.Random(seed),
        )


def _matcher(form: str, rules: CallRules, marked: bool = True) -> LLMatcher:
    _, marks, llg = _vocabulary(form)
    structure = call_structure(rules, marks if marked else style(form), None)
    return make_matcher(llg, definition("lark", structure.grammar.context_free))


@forms
def test_the_grammar_of_calls_allows_what_the_template_writes(form: str) -> None:
    made = _vocabulary(form)[0]
    for seed in EACH:
        wanted = case(form, seed)
        may_talk = seed % 2 == 0
        text = wanted.text if may_talk or form == "harmony" else ""
        answer, ids = rendered(form, text, wanted.calls), encoded(form, text, wanted.calls, made)
        matcher = _matcher(form, wanted.rules(may_talk=may_talk))
        allowed = matcher.validate_tokens(ids)
        assert allowed == len(ids), (answer, made.decode(ids[:allowed], skip_special_tokens=False))
        matcher.consume_tokens(ids)
        assert matcher.is_accepting(), answer


@forms
def test_what_the_grammar_of_required_calls_allows_is_read_as_calls(form: str) -> None:
    made, marks, _ = _vocabulary(form)
    for seed in FEW:
        rng, rules = random.Random(seed), case(form, seed).rules()
        shown = made.decode(_walk(_matcher(form, rules), made, FORMATS[form], rng), skip_special_tokens=False)
        parts = tokens(shown, marks, rng)
        text, calls = _told(_read(marks, rules, parts, [len(parts)]))
        assert calls, shown
        assert form == "harmony" or text == "", shown
        for name, arguments in calls:
            (schema,) = (function.schema for function in rules.functions if function.name == name)
            assert jsonschema_rs.is_valid(json.loads(schema), json.loads(arguments, parse_float=_finite)), (
                shown,
                arguments,
            )


def _finite(number: str) -> float:
    return max(min(float(number), 1e300), -1e300)


def _walk(matcher: LLMatcher, made: Any, form: CallFormat, rng: random.Random) -> list[int]:
    """Tokens of an answer that the grammar allows, drawn at random; what closes values and calls is drawn often."""
    closing = getattr(form.arguments, "closing", "")
    ends = [*form.tail, form.end, closing, '"', "'", "}", "]", ")", "0", "null"]
    encoded = [made.encode(end).ids for end in ends if end and "$" not in end]
    said: list[int] = []
    while not (matcher.is_accepting() and (len(said) > 200 or rng.random() < 0.3)):
        assert len(said) < 4000, made.decode(said)
        likely = [ids for ids in encoded if matcher.validate_tokens(ids) == len(ids)]
        drawn = rng.choice(likely) if likely and rng.random() < 0.5 else [_any(matcher, rng)]
        assert matcher.consume_tokens(drawn)
        said += drawn
        if matcher.is_stopped():
            break
    return said


def _any(matcher: LLMatcher, rng: random.Random) -> int:
    mask = matcher.compute_bitmask()
    allowed = [token for token in range(8 * len(mask)) if token != 0 and mask[token // 8] >> token % 8 & 1]
    return rng.choice(allowed)


@forms
def test_the_template_or_the_special_tokens_show_the_format(form: str) -> None:
    assert format_of(template(form), lambda text: False) == form
    if FORMATS[form].marks:
        alike = {"deepseek_v31": "deepseek_v3", "qwen3_coder": "hermes", "glm45": "glm47"}
        assert format_of("", FORMATS[form].marks.__contains__) == alike.get(form, form)


def test_each_format_can_be_set() -> None:
    for form in FORMATS:
        assert msgspec.convert({"calls": form}, TokenizerSettings).calls == form
