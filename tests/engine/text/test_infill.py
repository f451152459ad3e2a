"""Prompts with a suffix, written with the tokens of each family of models."""

from __future__ import annotations

import pytest
import tokenizers
from outrider.engine.text import TextError
from outrider.engine.text.infill import Infill

from tests.engine.text.makers import byte_fallback, byte_level, tokenizer

BEFORE, AFTER = [1, 2], [3]
PREFIX_FIRST = [100, *BEFORE, 101, *AFTER, 102]
FAMILIES = {
    "Qwen, CodeGemma": (["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>"], PREFIX_FIRST),
    "StarCoder, Granite": (["<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<filename>"], PREFIX_FIRST),
    "DeepSeek-Coder": (["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"], PREFIX_FIRST),
    "Code Llama": (["▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"], PREFIX_FIRST),
    "Codestral": (["[PREFIX]", "[SUFFIX]", "[MIDDLE]"], [101, *AFTER, 100, *BEFORE]),
}
MARKS = FAMILIES["Qwen, CodeGemma"][0]


def _with_marks(made: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    made.add_tokens([tokenizers.AddedToken(mark, special=False, normalized=False) for mark in MARKS])
    return made


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_has_the_marks_of_the_model_in_its_order(family: str) -> None:
    marks, prompt = FAMILIES[family]
    found = Infill.of({mark: 100 + place for place, mark in enumerate(marks)}, {})
    assert found is not None
    assert found.around(BEFORE, AFTER) == prompt
    assert set(found.ends) == {100 + place for place, mark in enumerate(marks) if mark != "[MIDDLE]"}


def test_names_in_a_file_go_before_known_ones() -> None:
    names = {"fim_pre": "a", "fim_suf": "b", "fim_mid": "c", "fim_sep": "d"}
    vocabulary = dict(zip([*MARKS, *"abcd"], range(8), strict=True))
    found = Infill.of(vocabulary, names)
    assert found is not None
    assert found.around([], []) == [4, 5, 6]
    assert set(found.ends) == {3, 4, 5, 6, 7}


def test_a_vocabulary_without_all_marks_has_none() -> None:
    assert Infill.of({"<|fim_prefix|>": 0, "<|fim_suffix|>": 1, "a": 2}, {"fim_pre": "a"}) is None
    with pytest.raises(TextError, match=r"^this model has no tokens for a prompt with a suffix$"):
        tokenizer(byte_level()).encode_infill("a", "b")


def test_texts_are_encoded_one_by_one_and_only_the_marks_are_marks() -> None:
    chosen = tokenizer(_with_marks(byte_level()))
    pre, suf, mid, sep = (chosen.added_token(mark) for mark in MARKS)
    parts = chosen.encode("def f(", add_special=False), chosen.encode("\n    return\n", add_special=False)
    assert chosen.encode_infill("def f(", "\n    return\n") == [pre, *parts[0], suf, *parts[1], mid]
    assert chosen.infill is not None
    assert set(chosen.infill.ends) == {pre, suf, mid, sep}


def test_no_space_stands_before_a_suffix_where_one_stands_before_texts() -> None:
    chosen = tokenizer(_with_marks(byte_fallback()))
    suf, mid = (chosen.added_token(mark) for mark in MARKS[1:3])
    ids = chosen.encode_infill("def", "arg")
    after = ids[ids.index(suf) + 1 : ids.index(mid)]
    assert after
    assert chosen.encode("argarg", add_special=False)[-len(after) :] == after
    assert after != chosen.encode("arg", add_special=False)
