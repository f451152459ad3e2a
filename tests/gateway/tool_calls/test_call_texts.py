"""What stands around calls, what is none, and when arguments come; among them what went wrong elsewhere."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from outrider.gateway.request.generation import CallableFunction, CallRules
from outrider.gateway.schemas.enforced import enforced
from outrider.gateway.schemas.parameters import Parameters
from outrider.gateway.tool_calls.answer_reader import AnswerPiece, AnswerReader
from outrider.gateway.tool_calls.python_arguments import PythonArguments
from outrider.wire.calls import FORMATS, CallStyle
from outrider.wire.frames import Finish, Frame

from tests.gateway.tool_calls.formats import rendered, style, tokens, vocabulary

SCHEMA: Any = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "maybe": {"type": ["string", "null"]},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "object"}]},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "sure": {"type": "boolean"},
        "nothing": {"type": "null"},
        "list": {"type": "array"},
        "inner": {"type": "object"},
    },
}
RULES = CallRules((CallableFunction("run", enforced(SCHEMA).schema), CallableFunction("stop", "{}")), True, 16, "tools")
ANYWHERE = [name for name, form in FORMATS.items() if form.anywhere]
SEVERAL = [name for name in ANYWHERE if FORMATS[name].most > 1]


def _pieces(form: str, frames: list[list[str]], finish: Finish = Finish.STOP) -> tuple[list[AnswerPiece], AnswerReader]:
    """The pieces of an answer, given by the texts of each frame's tokens."""
    reader = AnswerReader(CallStyle(form), RULES.names, RULES.types)
    made = [piece for texts in frames for piece in reader.take(_frame(texts))]
    return made + reader.take(Frame("r", 0, [], [], [], finish)), reader


def _frame(texts: list[str]) -> Frame:
    return Frame("r", 0, [1] * len(texts), texts, [""] * len(texts))


def _told(pieces: list[AnswerPiece]) -> list[str | tuple[str, Any]]:
    """Texts and calls in their order."""
    told: list[Any] = []
    for piece in pieces:
        if piece.name is not None:
            told.append([piece.name, ""])
        if piece.place is not None:
            told[-1][1] += piece.text
        elif told and isinstance(told[-1], str):
            told[-1] += piece.text
        else:
            told.append(piece.text)
    return [part if isinstance(part, str) else (part[0], json.loads(part[1])) for part in told]


def _told_of(form: str, answer: str) -> list[str | tuple[str, Any]]:
    """What is told of an answer, which does not depend on how its text is cut."""
    whole = _told(_pieces(form, [[answer]])[0])
    for size in (1, 3, 16):
        parts = [answer[start : start + size] for start in range(0, len(answer), size)]
        assert _told(_pieces(form, [parts])[0]) == _told(_pieces(form, [[part] for part in parts])[0]) == whole
    return whole


RUN, STOP = ("run", {"text": "}\"'\n"}), ("stop", {})


@pytest.mark.parametrize("form", SEVERAL)
def test_text_before_between_and_after_calls_is_content(form: str) -> None:
    first, second = rendered(form, "", [RUN]), rendered(form, "", [STOP, RUN])
    assert _told_of(form, f"Now {first} and\n{second}.") == ["Now", RUN, " and", STOP, RUN, "."]


@pytest.mark.parametrize("form", ANYWHERE)
def test_a_mark_that_begins_no_call_is_content(form: str) -> None:
    whole = rendered(form, "", [RUN])
    if FORMATS[form].turns:  # whose own marks are no content
        return
    for place in range(1, whole.index("run")):
        assert _told_of(form, f"See {whole[:place]}") == [f"See {whole[:place]}"]
        assert _told_of(form, f"See {whole[:place]}\0 and {whole}")[1] == RUN
    unknown = whole.replace("run", "rum")
    assert _told_of(form, unknown)[0] == unknown


@pytest.mark.parametrize("form", list(FORMATS))
def test_a_function_that_was_not_offered_is_content(form: str) -> None:
    told = _told_of(form, rendered(form, "", [("rum", {"text": "a"})]))
    assert all(isinstance(part, str) for part in told)
    assert "rum" in "".join(map(str, told))


@pytest.mark.parametrize("form", SEVERAL)
def test_no_call_is_lost_where_a_step_ends_one_and_begins_the_next(form: str) -> None:
    """As in vLLM's issue 41967, where the first call's arguments were dropped."""
    made = vocabulary(form)
    marks, answer = style(form, made), rendered(form, "", [RUN, STOP, RUN])
    for seed in range(20):
        parts = tokens(answer, marks, random.Random(seed))
        reader = AnswerReader(marks, RULES.names, RULES.types)
        pieces = []
        while parts:
            step, parts = parts[:16], parts[16:]
            pieces += reader.take(
                Frame("r", 0, [token for token, _ in step], [text for _, text in step], [""] * len(step))
            )
        assert _told(pieces) == [RUN, STOP, RUN]
        assert reader.whole


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("count", -7), ("share", 0.25), ("sure", True), ("sure", False), ("nothing", None), ("list", [1, [2]])),
        *(("inner", {"a": "</parameter>\n</arg_value>"}), ("text", "12"), ("maybe", None), ("maybe", "no")),
    ],
)
@pytest.mark.parametrize("form", list(FORMATS))
def test_the_last_value_of_any_type_is_whole_in_a_stream(form: str, name: str, value: Any) -> None:
    """As in vLLM's issue 48702, where values that are no strings lost their end."""
    call = ("run", {"text": "a", name: value}) if name != "text" else ("run", {name: value})
    assert _told_of(form, rendered(form, "", [call])) == [call]


@pytest.mark.parametrize("form", ["qwen3_coder", "glm45", "glm47"])
@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("text", "5", "5"),
        ("text", "null", "null"),
        ("maybe", "null", None),
        ("maybe", "None", None),
        ("maybe", "nullable", "nullable"),
        ("maybe", "5", "5"),
        ("either", "5", 5),
        ("either", "5.5", "5.5"),
        ("either", '{"a": 1}', {"a": 1}),
        ("either", "{a}", "{a}"),
        ("either", '"5"', '"5"'),
        ("count", " 5 ", 5),
        ("count", "five", "five"),
        ("count", "NaN", "NaN"),
        ("sure", "True", True),
        ("sure", "false", False),
        ("list", "[1, 2]", [1, 2]),
        ("unknown", "5", 5),
        ("unknown", "[5", "[5"),
    ],
)
def test_a_value_between_tags_has_a_type_that_its_schema_allows(form: str, name: str, text: str, value: Any) -> None:
    answer = rendered(form, "", [("run", {name: text})])
    assert _told_of(form, answer) == [("run", {name: value})]


@pytest.mark.parametrize("form", ["qwen3_coder", "glm45", "glm47"])
@pytest.mark.parametrize("name", ["text", "maybe", "either"])
def test_a_long_text_comes_before_its_end(form: str, name: str) -> None:
    answer = rendered(form, "", [("run", {name: "line\n" * 9})])
    cut = answer.index("line\n" * 3) + 15
    pieces, reader = _pieces(form, [[answer[:cut]]], Finish.LENGTH)
    said = "".join(piece.text for piece in pieces)
    assert said.startswith(f'{{"{name}": "line\\nline\\nline')
    assert not reader.whole


@pytest.mark.parametrize(
    ("said", "value"),
    [
        (r"'it\'s \"so\"'", 'it\'s "so"'),
        (r"'\x41\u0042\U00000043\101\0'", "ABCA\0"),
        (r"'a\\n\n\t\d\/'", "a\\n\n\t\\d/"),
        (r'"\ud83d\ude00"', "😀"),
        ("'two\nlines'", "two\nlines"),
        ("(1, 'a', None)", [1, "a", None]),
        ("{'a': {'b': [True, false, null]}}", {"a": {"b": [True, False, None]}}),
        ("-1.5e-3", -0.0015),
    ],
)
def test_pythons_literals_become_json(said: str, value: Any) -> None:
    for size in (1, 2, 99):
        reader, held, made = PythonArguments(), "", ""
        text = f"a = {said},b=1)]"
        for start in range(0, len(text), size):
            part, held = reader.split(held + text[start : start + size])
            made += part
        assert (json.loads(made), held, reader.whole) == ({"a": value, "b": 1}, ")]", True)


def test_of_names_that_begin_alike_the_longest_one_is_called() -> None:
    names, marks = ("get", "get_all", "get_al"), CallStyle("glm47")
    for name in names:
        answer = (
            f"<tool_call>{name}<arg_key>a</arg_key><arg_value>1</arg_value></tool_call><tool_call>{name}</tool_call>"
        )
        for size in (1, 2, 5, 99):
            reader = AnswerReader(marks, names, [{"a": ("integer",)}] * 3)
            parts = [answer[start : start + size] for start in range(0, len(answer), size)]
            pieces = [piece for part in parts for piece in reader.take(Frame("r", 0, [1], [part], [""]))]
            assert [piece.name for piece in pieces if piece.name is not None] == [name, name]
            assert "".join(piece.text for piece in pieces) == '{"a": 1}{}'
            assert reader.whole


def test_turns_of_harmony_are_no_content() -> None:
    answer = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes."
    assert _told_of("harmony", answer) == ["Hm.Yes."]
    behind = "<|start|>assistant<|channel|>commentary to=functions.run <|constrain|>json<|message|>{}"
    assert _told_of("harmony", behind) == [("run", {})]


@pytest.mark.parametrize("form", list(FORMATS))
def test_a_call_that_is_cut_off_is_not_whole(form: str) -> None:
    answer = rendered(form, "", [("run", {"text": "abc"})])
    pieces, reader = _pieces(form, [[answer[: answer.index("abc") + 2]]], Finish.LENGTH)
    assert (pieces[0].name, reader.called, reader.whole) == ("run", True, False)


def test_types_are_those_that_all_parts_of_a_schema_allow() -> None:
    schema = {
        "$defs": {"0": {"enum": ["a", 1]}, "1": {"allOf": [{"type": ["string", "null"]}, {"$ref": "#/$defs/0"}]}},
        "allOf": [
            {"properties": {"a": {"$ref": "#/$defs/1"}}, "required": ["a"]},
            {"anyOf": [{"properties": {"b": {"type": "number"}}}, {"properties": {"b": {"const": None}}}]},
        ],
        "additionalProperties": {"type": "boolean"},
    }
    read = Parameters.of(json.dumps(schema))
    assert read.types() == {"a": ("string",), "b": ("integer", "null", "number"), "": ("boolean",)}
    assert read.required == {"a"}
