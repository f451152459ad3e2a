"""Grammars in GBNF mean what they mean to llama.cpp."""

from __future__ import annotations

import pytest
from llguidance import LLMatcher, LLTokenizer
from outrider.engine.logits.grammar_definitions import definition, load_tokenizer

from tests.engine.text.makers import byte_level


@pytest.fixture(scope="module")
def vocabulary() -> LLTokenizer:
    made = byte_level()
    return load_tokenizer(made.to_str().encode(), made.get_vocab_size(), [0])


def _takes(vocabulary: LLTokenizer, grammar: str, text: str) -> bool:
    matcher = LLMatcher(vocabulary, definition("context_free", grammar), log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    ids = byte_level().encode(text, add_special_tokens=False).ids
    return bool(matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting())


@pytest.mark.parametrize(
    ("grammar", "inside", "outside"),
    [
        (r'root ::= "\u00e9" [\u0430-\u044f] "\U0001F600"', "éя😀", "ея😀"),
        (r'root ::= "\x41\x22\x5C"', 'A"\\', "A"),
        (r'root ::= "\\u0041"', r"\u0041", "A"),
        (r"root ::= [\u005d\x5b\\]+", "[]\\", "a"),
        (r'root ::= [^\x00-\x1f"\\]{2,3}', "ab", 'a"'),
        ("root ::= .+", "a\nb.", ""),
        ("root ::= [a-z&&~]+", "a&~", "A"),
        ('root ::= "a.b" # any . of <these>\n', "a.b", "acb"),
    ],
)
def test_escapes_ranges_and_points(vocabulary: LLTokenizer, grammar: str, inside: str, outside: str) -> None:
    assert _takes(vocabulary, grammar, inside)
    assert not _takes(vocabulary, grammar, outside)


@pytest.mark.parametrize("token", ["<think>", "!<think>", "<[5]>"])
def test_tokens_are_refused_by_name(token: str) -> None:
    with pytest.raises(ValueError, match="it names the token ") as caught:
        definition("context_free", f'root ::= "a" {token}')
    assert token in str(caught.value)
