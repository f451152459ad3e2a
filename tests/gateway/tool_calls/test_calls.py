"""Calls of functions: the grammar of answers, and the reader that finds calls in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from outrider.engine.logits.edits import EditBatch
from outrider.engine.logits.grammar import Grammars
from outrider.engine.speculation import NO_GUESSES
from outrider.engine.text import Tokenizer
from outrider.gateway.api.schema.structure import NamedSchema
from outrider.gateway.request.generation import CallableFunction, CallRules
from outrider.gateway.tool_calls.answer_reader import AnswerPiece, AnswerReader
from outrider.gateway.tool_calls.grammar import call_structure
from outrider.tokenizer.service import call_style
from outrider.verifier.requests.conversion import grammar_from_proto
from outrider.wire.calls import CallStyle, Mark
from outrider.wire.frames import Finish, Frame

from tests.engine.masks import bits
from tests.engine.text.makers import CHATML, byte_level, write
from tests.gateway.calls import HERMES, LLAMA, PAINT, save_calling

EOS = 0
PAINTED = '<tool_call>\n{"name": "paint", "arguments": {"colour": "red", "coats": 2}}\n</tool_call>'
WAITED = '<tool_call>\n{"name": "wait", "arguments": {}}\n</tool_call>'
LLAMA_PAINTED = '{"name": "paint", "parameters": {"colour": "red", "coats": 2}}'
CALLEES = (
    CallableFunction("paint", json.dumps(PAINT)),
    CallableFunction("wait", '{"type":"object","additionalProperties":false}'),
)
NAMES = ("paint", "wait")


def _calling(may_talk: bool = True, most: int = 16) -> CallRules:
    return CallRules(CALLEES, may_talk, most, "tools")


@pytest.fixture(scope="module", params=["spelled", "tokens", "silent"])
def hermes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models without tokens for the marks of calls, with such tokens, and with special ones."""
    made = tmp_path_factory.mktemp(request.param)
    if request.param == "spelled":
        write(made, byte_level(), chat_template=HERMES)
        return made
    return save_calling(made, silent=request.param == "silent")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("llama")
    write(made, byte_level(), chat_template=LLAMA)
    return made


def _style(directory: Path) -> CallStyle:
    return call_style(Tokenizer.load(directory), "auto")


def _allows(directory: Path, calling: CallRules, said: str | list[str], text: Any = None, *, ends: bool = True) -> bool:
    """Whether an answer may be ``said``, a text or a list of tokens, or may begin with it unless it ``ends``."""
    tokenizer = Tokenizer.load(directory)
    asked = None if text is None else NamedSchema("a", text).structure("response_format")
    grammar = call_structure(calling, _style(directory), asked).grammar
    grammars = Grammars(tokenizer.definition, tokenizer.vocabulary_size, frozenset({EOS}))
    compiled = grammars.compile(grammar_from_proto(grammar))
    parts = [said] if isinstance(said, str) else said
    tokens = [EOS, *(token for part in parts for token in tokenizer.encode(part, parse_special=True))]
    batch = EditBatch(tokenizer.vocabulary_size)
    compiled.guide(tokens, 1, frozenset({EOS})).edit(batch, 0, NO_GUESSES)
    [allowed] = bits(batch, 1, tokenizer.vocabulary_size)
    return allowed is None or (allowed[EOS] if ends else any(allowed))


@pytest.mark.parametrize("said", ["", "hello", "a < b", "{}", PAINTED, f"hello\n{PAINTED}", f"{PAINTED}\n{WAITED}"])
def test_an_answer_may_be_text_or_calls_or_one_and_then_the_others(hermes: Path, said: str) -> None:
    assert _allows(hermes, _calling(), said)


@pytest.mark.parametrize(
    "said",
    [
        "<tool_call>x",
        "hello <tool_call>hello",
        PAINTED.replace("red", "blue"),
        PAINTED.replace("paint", "pant"),
        PAINTED.replace('": {', '":{'),
        f"{PAINTED}\nhello",
    ],
)
def test_what_has_begun_as_a_call_is_one_that_its_schema_allows(hermes: Path, said: str) -> None:
    assert not _allows(hermes, _calling(), said, ends=False)


def test_text_cannot_spell_what_begins_a_call(tmp_path: Path) -> None:
    with_tokens = save_calling(tmp_path)
    assert _allows(with_tokens, _calling(), ["a", "<", "tool_call", "]"])
    assert not _allows(with_tokens, _calling(), ["a", "<", "tool_call", ">"], ends=False)


def test_a_call_that_has_begun_does_not_end_before_it_is_whole(hermes: Path) -> None:
    assert _allows(hermes, _calling(), PAINTED[:40], ends=False)
    assert not _allows(hermes, _calling(), PAINTED[:40])


def test_calls_that_have_to_be_come_first_and_are_as_many_as_may_be(hermes: Path) -> None:
    assert _allows(hermes, _calling(may_talk=False), f"{PAINTED}\n{WAITED}")
    assert not _allows(hermes, _calling(may_talk=False), "", ends=True)
    assert not _allows(hermes, _calling(may_talk=False), "hello", ends=False)
    assert not _allows(hermes, _calling(most=1), f"{PAINTED}\n<", ends=False)


@pytest.mark.parametrize("may_talk", [True, False])
@pytest.mark.parametrize("said", [PAINTED, f"{PAINTED}\n{WAITED}"])
def test_an_answer_may_end_behind_any_call_and_behind_the_line_that_would_begin_another(
    hermes: Path, may_talk: bool, said: str
) -> None:
    calling = _calling(may_talk)
    assert _allows(hermes, calling, said)
    assert _allows(hermes, calling, f"{said}\n")
    assert _allows(hermes, calling, f"{said}\n{PAINTED}\n")
    assert not _allows(hermes, calling, f"{said}\n\n", ends=False)


def test_a_call_that_has_to_be_the_only_one_is(hermes: Path) -> None:
    for may_talk in (True, False):
        assert _allows(hermes, _calling(may_talk, most=1), PAINTED)
        assert not _allows(hermes, _calling(may_talk, most=1), f"{PAINTED}\n", ends=False)


ODDLY_NAMED = ("shop.paint/wall:v2", "a-b_c")
LIKE_IT = "shopXpaint/wall:v2"


@pytest.mark.parametrize("name", ODDLY_NAMED)
def test_names_may_hold_what_means_something_in_a_pattern(hermes: Path, llama: Path, name: str) -> None:
    calling = CallRules(tuple(CallableFunction(name, json.dumps(PAINT)) for name in ODDLY_NAMED), True, 16, "tools")
    fenced = f"```json\n{BARE}\n```"
    for directory, said in ((hermes, PAINTED), (hermes, fenced), (llama, LLAMA_PAINTED), (llama, fenced)):
        named = said.replace("paint", name)
        assert _allows(directory, calling, named)
        assert not _allows(directory, calling, named.replace("red", "blue"), ends=False)
        pieces, _ = _read(_style(directory), list(named), names=ODDLY_NAMED, bare=True)
        assert _whole(pieces) == ("", [(name, ARGUMENTS)])
        other = said.replace("paint", LIKE_IT).replace("red", "blue")
        assert _allows(directory, calling, other, ends=False) == (said == fenced)


ARGUMENTS = '{"colour": "red", "coats": 2}'
BARE = f'{{"name": "paint", "arguments": {ARGUMENTS}}}'
INDENTED = f'{{\n  "name" : "paint",\n\t"parameters":{ARGUMENTS} \n}}'
BARE_WAIT = '{"name": "wait", "arguments": {}}'
BARES = [
    (BARE, 1),
    (f"\n {INDENTED}\n", 1),
    (f"```json\n{BARE}\n```", 1),
    (f"```\n{INDENTED}\n```\n", 1),
    (f"``` json {BARE}", 1),
    (f"{BARE}\n{BARE}{INDENTED}", 3),
    (f"```json\n{BARE},\n{BARE}\n```", 2),
    (f"```json\n{BARE}\n```\n\n```json\n{BARE}\n```", 2),
]
"""Answers of nothing but calls, with their number."""

TEXTS = [
    f"Like so: {BARE}",
    f"{BARE} paints the wall.",
    f"```json\n{BARE}\n```\nThis paints the wall.",
    BARE.replace("paint", "pant"),
    BARE[:-1],
    BARE.replace('"name"', '"names"'),
    '{"name": "paint"}',
    "```python\nprint(1)\n```",
    "```json\n```",
    '{"arguments": {}, "name": "wait"}',
    "",
    "```",
]
"""Answers that are not calls, though some begin or end like calls."""


@pytest.mark.parametrize(("said", "calls"), BARES)
def test_calls_without_marks_have_arguments_that_their_schema_allows(
    hermes: Path, llama: Path, said: str, calls: int
) -> None:
    for directory in (hermes, llama):
        if directory == llama and said.startswith('{"name": '):
            continue  # which is how Llama's own calls begin
        assert _allows(directory, _calling(), said)
        assert _allows(directory, _calling(), f"{said}\nThis paints the wall.")
        before, _, after = said.rpartition("red")
        assert not _allows(directory, _calling(), f"{before}blue{after}", ends=False)


@pytest.mark.parametrize("said", TEXTS)
def test_other_text_is_free(hermes: Path, said: str) -> None:
    assert _allows(hermes, _calling(), said, ends=said != BARE[:-1])


def test_calls_with_marks_may_follow_some_without(hermes: Path) -> None:
    assert _allows(hermes, _calling(), f"{BARE}\n{PAINTED}\n{WAITED}")
    assert not _allows(hermes, _calling(), f"{BARE}\n{PAINTED.replace('red', 'blue')}", ends=False)


def test_text_of_a_schema_is_no_call(hermes: Path) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "arguments": {"type": "integer"}}}
    assert _allows(hermes, _calling(), '{"name": "paint", "arguments": 1}', schema)
    assert not _calling().bare(NamedSchema("a", schema).structure("response_format"))
    assert not _calling(may_talk=False).bare(None)


def test_text_beside_calls_may_have_a_schema_too(hermes: Path) -> None:
    said = '{"colour": "green", "coats": 1}'
    assert _allows(hermes, _calling(), said, PAINT)
    assert _allows(hermes, _calling(), PAINTED, PAINT)
    assert not _allows(hermes, _calling(), "hello", PAINT, ends=False)


def test_llamas_calls_are_the_whole_answer_and_one(llama: Path) -> None:
    for said in ("", "hello", '{"a": 1}', f"call {LLAMA_PAINTED}", LLAMA_PAINTED):
        assert _allows(llama, _calling(), said)
    for said in (LLAMA_PAINTED.replace("red", "blue"), f"{LLAMA_PAINTED} and", '{"name": "x'):
        assert not _allows(llama, _calling(), said, ends=False)
    assert not _allows(llama, _calling(may_talk=False), "hello", ends=False)


def test_the_template_or_the_operator_says_how_calls_are_written(hermes: Path, llama: Path, tmp_path: Path) -> None:
    assert (_style(hermes).name, _style(llama).name) == ("hermes", "llama3")
    write(tmp_path, byte_level(), chat_template=CHATML)
    assert _style(tmp_path).name == "hermes"
    assert call_style(Tokenizer.load(hermes), "llama3") == CallStyle("llama3")


def _read(
    style: CallStyle,
    said: list[str],
    *,
    tokens: list[int] | None = None,
    names: tuple[str, ...] = NAMES,
    bare: bool = False,
    finish: Finish = Finish.STOP,
) -> tuple[list[AnswerPiece], AnswerReader]:
    reading = AnswerReader(style, names, bare=bare)
    ids = tokens or [1] * len(said)
    pieces = [piece for place in range(len(said)) for piece in reading.take(_frame(ids[place], said[place]))]
    return pieces + reading.take(Frame("r", len(said), [], [], [], finish)), reading


def _frame(token: int, text: str) -> Frame:
    return Frame("r", 0, [token], [text], [""])


def _whole(pieces: list[AnswerPiece]) -> tuple[str, list[tuple[str, str]]]:
    """The text, and the calls with their names and arguments."""
    text = "".join(piece.text for piece in pieces if piece.place is None)
    names = [piece.name for piece in pieces if piece.name]
    parts = ["".join(piece.text for piece in pieces if piece.place == place) for place in range(len(names))]
    return text, list(zip(names, parts, strict=True))


ODD = '{"a": "}]\\"}", "b": [{"c": {}}]}'


@pytest.mark.parametrize(
    ("style", "said", "text", "calls"),
    [
        ("hermes", "hello <b> \n", "hello <b> \n", []),
        ("hermes", PAINTED, "", [("paint", ARGUMENTS)]),
        ("hermes", f"{PAINTED}\n", "", [("paint", ARGUMENTS)]),
        ("hermes", BARE, BARE, []),
        ("hermes", f"hello, \n{PAINTED}\n{WAITED}", "hello,", [("paint", ARGUMENTS), ("wait", "{}")]),
        ("hermes", PAINTED.replace(ARGUMENTS, ODD), "", [("paint", ODD)]),
        ("hermes", PAINTED.replace(ARGUMENTS, "5"), "", [("paint", "5")]),
        ("hermes", "<tool_call>\n{", "<tool_call>\n{", []),
        ("hermes", PAINTED.replace("paint", "pant"), PAINTED.replace("paint", "pant"), []),
        ("hermes", "<tool_<tool_call" + PAINTED, "<tool_<tool_call", [("paint", ARGUMENTS)]),
        ("hermes", PAINTED.partition(' "coats')[0], "", [("paint", '{"colour": "red",')]),
        ("llama3", LLAMA_PAINTED, "", [("paint", ARGUMENTS)]),
        ("llama3", f"a {LLAMA_PAINTED}", f"a {LLAMA_PAINTED}", []),
        ("llama3", '{"a": 1} ', '{"a": 1} ', []),
    ],
)
def test_text_and_calls_are_told_apart_wherever_tokens_end(
    style: str, said: str, text: str, calls: list[tuple[str, str]]
) -> None:
    for size in (1, 2, 3, 7, 19, len(said)):
        pieces, _ = _read(CallStyle(style), [said[start : start + size] for start in range(0, len(said), size)])
        assert _whole(pieces) == (text, calls)


@pytest.mark.parametrize("style", ["hermes", "llama3"])
@pytest.mark.parametrize(("said", "calls"), BARES)
def test_an_answer_that_is_calls_without_marks_is_told_as_calls_at_its_end(style: str, said: str, calls: int) -> None:
    for size in (1, 2, 3, 7, 19, len(said)):
        parts = [said[start : start + size] for start in range(0, len(said), size)]
        pieces, reading = _read(CallStyle(style), parts, bare=True)
        assert [(piece.name, piece.text, piece.place) for piece in pieces] == [
            ("paint", ARGUMENTS, place) for place in range(calls)
        ]
        assert reading.whole
        cut, reading = _read(CallStyle(style), parts, bare=True, finish=Finish.LENGTH)
        assert (_whole(cut), reading.whole) == ((said, []), False)


@pytest.mark.parametrize("style", ["hermes", "llama3"])
@pytest.mark.parametrize("said", TEXTS)
def test_an_answer_of_which_a_part_is_no_call_is_text(style: str, said: str) -> None:
    for size in (1, 2, 3, 7, 19, max(1, len(said))):
        pieces, reading = _read(
            CallStyle(style), [said[start : start + size] for start in range(0, len(said), size)], bare=True
        )
        assert (_whole(pieces), reading.called) == ((said, []), False)


def test_calls_with_marks_make_text_of_those_before_them() -> None:
    pieces, _ = _read(CallStyle(), list(f"{BARE}\n{WAITED}"), bare=True)
    assert _whole(pieces) == (BARE, [("wait", "{}")])


def test_llamas_own_calls_do_not_wait_for_the_end() -> None:
    pieces, _ = _read(CallStyle("llama3"), ['{"name": "paint", "parameters": {"col', 'our": '], bare=True)
    assert pieces == [AnswerPiece('{"col', 0, "paint"), AnswerPiece('our": ', 0)]


def test_text_is_held_back_only_while_it_may_become_a_call() -> None:
    reading = AnswerReader(CallStyle(), NAMES, bare=True)
    told = [reading.take(_frame(1, text)) for text in ("```", "json\n", '{"name"', ': "pa', 'nt"', " is it")]
    assert told == [[], [], [], [], [AnswerPiece('```json\n{"name": "pant"')], [AnswerPiece(" is it")]]


def test_the_last_tokens_tell_of_calls_before_the_end_is_told() -> None:
    reading = AnswerReader(CallStyle(), NAMES, bare=True)
    assert reading.take(_frame(1, BARE_WAIT), last=True) == [AnswerPiece("{}", 0, "wait")]
    assert reading.take(Frame("r", 1, [], [], [], Finish.STOP)) == []
    assert reading.whole


def test_pieces_come_as_soon_as_they_are_sure() -> None:
    pieces, reading = _read(CallStyle(), ["hi", " <t", "ool_call>", '\n{"name": "paint", "arguments": {"col', 'our": '])
    assert pieces == [AnswerPiece("hi"), AnswerPiece('{"col', 0, "paint"), AnswerPiece('our": ', 0)]
    assert (reading.called, reading.whole) == (True, False)


def test_marks_that_leave_no_text_are_read_by_their_tokens() -> None:
    style = CallStyle("hermes", (Mark("<tool_call>", 7, True), Mark("</tool_call>", 8, True)))
    said = [
        "hi",
        "",
        '\n{"name": "wait", "arguments": {}}\n',
        "",
        "\n",
        "",
        '\n{"name": "paint", "arguments": 1}\n',
        "",
    ]
    pieces, reading = _read(style, said, tokens=[1, 7, 1, 8, 1, 7, 1, 8])
    assert _whole(pieces) == ("hi", [("wait", "{}"), ("paint", "1")])
    assert reading.whole
