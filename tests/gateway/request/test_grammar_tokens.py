"""What is a special token in a grammar is what llguidance takes for one."""

from __future__ import annotations

import pytest
from llguidance import LLMatcher, LLTokenizer
from outrider.engine.logits.grammar_definitions import definition, make_matcher
from outrider.gateway.request.grammar_tokens import named_token

from tests.engine.text.makers import SPECIAL, byte_level

NAME = SPECIAL[1]
NAMING = {
    "by its name": f'start: "a" {NAME} "b"',
    "by its id": 'start: "a" <[1]> "b"',
    "by a range": "start: <[0-2]>",
    "beside a text": f'start: "<"{NAME}">"',
    "behind a comment": f'// a "\nstart: {NAME} # "',
    "behind an expression": f'start: /"[^\\/]/ {NAME} "x"',
    "behind an escaped quote": f'start: "\\"" {NAME} "\\\\"',
    "behind JSON": f'start: a {NAME}\na: %json {{"const": "\\"<"}}',
    "in an indented rule": f" start : {NAME}",
    "in a rule with a modifier": f"?start: {NAME}",
    "beside GBNF's sign": f'start: {NAME} "::="',
    "with a header": f"%llguidance {{}}\nstart: {NAME}",
}
PLAIN = {
    "in a text": f'start: "{NAME}" "b"',
    "in a comment": f'# {NAME}\n// {NAME}\nstart: "a"',
    "in an expression": f"start: /{NAME.replace('|', chr(92) + '|')}/",
    "in JSON": f'start: %json {{"const": "{NAME}"}}',
    "GBNF": f'root ::= "{NAME}" [<a-z>]+',
}


@pytest.fixture(scope="module")
def vocabulary() -> LLTokenizer:
    return LLTokenizer(byte_level().to_str(), eos_token=[0])


def compiled(grammar: str, vocabulary: LLTokenizer) -> LLMatcher:
    return make_matcher(vocabulary, definition("context_free", grammar))


@pytest.mark.parametrize("name", NAMING)
def test_a_special_token_is_found_wherever_it_is_named(name: str, vocabulary: LLTokenizer) -> None:
    assert compiled(NAMING[name], vocabulary)
    assert named_token(NAMING[name]) in (NAME, "<[1]>", "<[0-2]>")


@pytest.mark.parametrize("name", PLAIN)
def test_the_name_of_a_special_token_in_a_text_is_text(name: str, vocabulary: LLTokenizer) -> None:
    assert compiled(PLAIN[name], vocabulary)
    assert named_token(PLAIN[name]) is None


def test_gbnf_names_no_special_tokens(vocabulary: LLTokenizer) -> None:
    for rule in ("root", "start"):
        with pytest.raises(ValueError, match=r"^it names the token .*, which is only possible in Lark$"):
            definition("context_free", f"{rule} ::= {NAME}")
