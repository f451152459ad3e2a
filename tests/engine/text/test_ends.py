"""The tokens that end an answer: those that any file names, and those that do by their names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from outrider.engine.text import TextError, Tokenizer
from outrider.engine.text.ends import end_names

from tests.engine.models.gguf.words import CONTROL, NORMAL, USER_DEFINED, add_words_of, write_words
from tests.engine.text.makers import bare, write

ALWAYS = ["<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<end_of_utterance>"]
SOMETIMES = ["</s>", "[EOT]", "<EOT>", "<eos>", "[EOS]"]
FIRST = 4
"""Id of the first added token."""


def words(*special: str, plain: tuple[str, ...] = ()) -> tokenizers.Tokenizer:
    """A few words, then special tokens, then others that are added."""
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "a": 1, "b": 2, "c": 3}, "[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.add_special_tokens(list(special))
    made.add_tokens(list(plain))
    return made


def ends(
    directory: Path, made: tokenizers.Tokenizer, generation: Any = None, config: Any = None, **more: Any
) -> set[int]:
    write(directory, made, **more)
    for name, value in (("generation_config", generation), ("config", config)):
        (directory / f"{name}.json").write_text(json.dumps({} if value is None else {"eos_token_id": value}))
    return set(Tokenizer.load(directory).eos_token_ids)


def test_every_file_s_ends_count(tmp_path: Path) -> None:
    made = words("<x>", "<y>", "<z>")
    assert ends(tmp_path, made, generation=4, config=5, eos_token="<z>") == {4, 5, 6}
    assert ends(tmp_path, made, generation=[4, 5], eos_token={"content": "<z>", "__type": "AddedToken"}) == {4, 5, 6}
    assert ends(tmp_path, made, config=[5], eos_token=None) == {5}
    assert ends(tmp_path, made) == set()


def test_an_older_model_s_map_of_special_tokens_counts(tmp_path: Path) -> None:
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"eos_token": {"content": "<y>"}}))
    assert ends(tmp_path, words("<x>", "<y>"), eos_token="<x>") == {5}
    assert ends(tmp_path, words("<x>", "<y>"), eos_token="<x>", added_tokens_decoder={}) == {4}


@pytest.mark.parametrize("value", ["</s>", -1, [1.5], True, {}])
def test_what_is_no_id_is_refused_in_a_sentence(tmp_path: Path, value: Any) -> None:
    with pytest.raises(TextError, match=r"config.json: eos_token_id"):
        ends(tmp_path, words(), generation=value)


@pytest.mark.parametrize("name", ALWAYS)
def test_a_name_that_no_text_has_ends_answers_and_is_special(tmp_path: Path, name: str) -> None:
    for made in (words("<x>", name), words("<x>", plain=(name,))):
        assert ends(tmp_path, made, config=4) == {4, 5}
        assert Tokenizer.load(tmp_path).decode([1, 5]) == "a"


@pytest.mark.parametrize("name", SOMETIMES)
def test_a_name_that_a_text_may_have_ends_answers_where_it_is_special_or_the_template_writes_it(
    tmp_path: Path, name: str
) -> None:
    assert ends(tmp_path, words("<x>", name), config=4) == {4, 5}
    plain = words("<x>", plain=(name,))
    assert ends(tmp_path, plain, config=4) == {4}
    assert Tokenizer.load(tmp_path).decode([1, 5]) == f"a {name}"
    assert ends(tmp_path, plain, config=4, chat_template="{{ messages[0].content }}" + name) == {4, 5}
    named = [{"name": "default", "template": "x"}, {"name": "tool_use", "template": name}]
    assert ends(tmp_path, plain, config=4, chat_template=named) == {4, 5}


@pytest.mark.parametrize("others", [("<|return|>", "<|call|>"), ("<|flush|>", "<|calls|>")])
def test_a_name_that_ends_a_part_of_an_answer_does_not_end_the_answer(tmp_path: Path, others: tuple[str, str]) -> None:
    assert ends(tmp_path, words("<|end|>", *others)) == {5, 6}
    assert ends(tmp_path, words("<|end|>", *others), generation=4) == {4, 5, 6}
    assert ends(tmp_path, words("<|end|>", others[0])) == {4, 5}


def test_names_that_look_alike_do_not_end_answers(tmp_path: Path) -> None:
    alike = ("<|im_start|>", "<|end_header_id|>", "<think>", "</think>", "<s>", "<pad>", "<|fim_end|>", "EOS", "im_end")
    assert ends(tmp_path, words(*alike), config=0) == {0}


@pytest.mark.parametrize("kind", [NORMAL, CONTROL, USER_DEFINED])
def test_a_file_s_token_ends_answers_whatever_its_kind(tmp_path: Path, kind: int) -> None:
    tokens = ["a", "b", "<|endoftext|>", "<|im_end|>", "</s>"]
    path = write_words(
        tmp_path / "model.gguf", "qwen2", add_words_of, tokens, [NORMAL, NORMAL, CONTROL, kind, kind], eos_token_id=2
    )
    made = Tokenizer.load(path)
    assert set(made.eos_token_ids) == ({2, 3, 4} if kind == CONTROL else {2, 3})
    assert made.decode([0, 3, 1]) == "ab"
    assert made.encode("a<|im_end|>", parse_special=True) == [0, 3]
    assert 3 not in made.encode("a<|im_end|>")


def test_a_file_s_ends_of_turns_and_of_messages_count(tmp_path: Path) -> None:
    tokens = ["a", "<1>", "<2>", "<3>"]
    ids = {"eos_token_id": 1, "eot_token_id": 2, "eom_token_id": 3}
    path = write_words(tmp_path / "model.gguf", "qwen2", add_words_of, tokens, [NORMAL] * 4, **ids)
    assert Tokenizer.load(path).eos_token_ids == (1, 2, 3)


NAMES = st.sets(st.sampled_from([*ALWAYS, *SOMETIMES, "<|return|>", "<|call|>", "a", "<x>"]))


@given(NAMES, NAMES, NAMES)
def test_ends_are_tokens_and_more_marks_never_take_one_away(
    vocabulary: set[str], special: set[str], more: set[str]
) -> None:
    special &= vocabulary
    found = set(end_names(vocabulary, special, [None]))
    assert found <= vocabulary
    assert found <= set(end_names(vocabulary, special | (more & vocabulary), ["".join(more)]))
    assert set(ALWAYS) & vocabulary <= found | {"<|end|>"}


def test_words_without_ends_have_none(tmp_path: Path) -> None:
    assert ends(tmp_path, bare()) == set()
