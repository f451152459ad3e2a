"""Tokens beside tokenizer.json: whole tokens under the ids of transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from outrider.engine.text import TextError, Tokenizer
from transformers import PreTrainedTokenizerFast

from tests.engine.text.makers import byte_level, metaspace, write

LAST = byte_level().get_vocab_size() - 1
"""The highest id of `byte_level`."""


def declared(content: str, **flags: bool) -> dict[str, Any]:
    plain = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return {"content": content, **plain, **flags}


def load(directory: Path, decoder: dict[int, Any] | None = None, **config: Any) -> Tokenizer:
    if decoder is not None:
        config["added_tokens_decoder"] = {str(number): token for number, token in decoder.items()}
    return Tokenizer.load(write(directory, byte_level(), **config))


def ids(made: Tokenizer, text: str) -> list[int]:
    return made.encode(text, parse_special=True)


@pytest.mark.parametrize("special", [True, False])
def test_a_token_of_the_configuration_alone_is_whole(tmp_path: Path, special: bool) -> None:
    made = load(tmp_path, {LAST + 1: declared("<mine>", special=special)})
    a, b = ids(made, "a")[0], ids(made, "b")[0]
    assert ids(made, "a<mine>b") == [a, LAST + 1, b]
    assert made.decode([a, LAST + 1, b]) == ("ab" if special else "a<mine>b")
    assert (LAST + 1 in made.encode("a<mine>b")) is not special
    assert ids(Tokenizer(made.definition()), "a<mine>b") == [a, LAST + 1, b]


def test_a_token_of_an_older_model_s_list_is_whole(tmp_path: Path) -> None:
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<mine>": LAST + 1, "<yours>": LAST + 2}))
    made = load(tmp_path, additional_special_tokens=["<yours>"])
    assert ids(made, "<yours><mine>") == [LAST + 2, LAST + 1]
    assert made.decode([LAST + 1, LAST + 2]) == "<mine>"
    assert ids(load(tmp_path, {}), "<mine>") != [LAST + 1]


def test_an_older_model_s_list_leaves_tokens_as_tokenizer_json_has_them(tmp_path: Path) -> None:
    there = {token.content: number for number, token in byte_level().get_added_tokens_decoder().items()}
    (tmp_path / "added_tokens.json").write_text(json.dumps(there))
    made, plain = load(tmp_path), Tokenizer(byte_level().to_str().encode())
    assert (made.special_tokens, made.definition()) == (plain.special_tokens, plain.definition())


def test_ids_with_gaps_are_kept(tmp_path: Path) -> None:
    made = load(tmp_path, {LAST + 9: declared("<nine>"), LAST + 4: declared("<four>"), LAST + 5: declared("<five>")})
    assert ids(made, "<nine><four><five>") == [LAST + 9, LAST + 4, LAST + 5]
    assert made.vocabulary_size == LAST + 10


@pytest.mark.parametrize("decoder", [{0: declared("<other>")}, {LAST + 1: declared("<|im_end|>")}], ids=["id", "text"])
def test_a_token_whose_id_or_text_belongs_to_another_is_left_out(tmp_path: Path, decoder: dict[int, Any]) -> None:
    plain = Tokenizer.load(write(tmp_path, byte_level()))
    assert load(tmp_path, decoder).fingerprint == plain.fingerprint


def test_a_word_becomes_a_token_and_a_token_special_where_the_configuration_says_so(tmp_path: Path) -> None:
    plain = Tokenizer.load(write(tmp_path, byte_level()))
    word, think = ids(plain, "def")[0], plain.added_token("<think>")
    assert think is not None
    made = load(tmp_path, {word: declared("def"), think: declared("<think>")})
    assert (made.special_tokens["def"], made.special_tokens["<think>"]) == (word, think)
    assert made.fingerprint == plain.fingerprint


@pytest.mark.parametrize("name", ["additional_special_tokens", "extra_special_tokens"])
def test_listed_special_tokens_are_special(tmp_path: Path, name: str) -> None:
    listed: Any = ["<think>", declared("<new>")]
    made = load(tmp_path, {}, **{name: listed})
    assert {"<think>", "<new>"} <= set(made.special_tokens)
    assert ids(made, "<new>") == [LAST + 1]
    assert load(tmp_path, {}, extra_special_tokens={"image_token": "<new>"}).special_tokens["<new>"] == LAST + 1


def test_a_vocabulary_that_is_complete_is_loaded_as_it_is(tmp_path: Path) -> None:
    there = byte_level().get_added_tokens_decoder().items()
    added = {number: declared(token.content, special=token.special) for number, token in there}
    assert load(tmp_path, added).fingerprint == Tokenizer.load(write(tmp_path, byte_level())).fingerprint


@pytest.mark.parametrize("decoder", [[1], {"x": declared("<a>")}, {"7": "<a>"}, {"7": {}}], ids=repr)
def test_another_form_is_refused_in_a_sentence(tmp_path: Path, decoder: Any) -> None:
    with pytest.raises(TextError, match=r"tokenizer_config.json: added_tokens_decoder must "):
        Tokenizer.load(write(tmp_path, byte_level(), added_tokens_decoder=decoder))


CONTENTS = st.sampled_from(["<m>", "word", "é", "<|x|>", "def", " two words"])
TOKENS = st.lists(
    st.tuples(CONTENTS, st.booleans(), st.booleans(), st.booleans()), unique_by=lambda token: token[0], max_size=4
)
PIECES = st.sampled_from(["a", " ", "<m>", "word", "é", "<|x|>", "def", " two words", "\n", "<think>"])
TEXTS = st.lists(PIECES, max_size=8).map("".join)


@pytest.mark.parametrize("kind", [byte_level, metaspace])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(TOKENS, TEXTS)
def test_ids_are_those_of_transformers(kind: Any, tmp_path: Path, tokens: list[Any], text: str) -> None:
    made = kind()
    next_id, decoder = made.get_vocab_size(), {}
    for content, special, lstrip, single_word in tokens:
        number = made.token_to_id(content)
        flags = {"special": special, "lstrip": lstrip, "single_word": single_word}
        decoder[next_id if number is None else number] = declared(content, **flags)
        next_id += number is None
    added = {str(number): token for number, token in decoder.items()}
    directory = write(tmp_path, made, added_tokens_decoder=added)
    theirs = PreTrainedTokenizerFast.from_pretrained(directory)
    ours = Tokenizer.load(directory)
    assert ids(ours, text) == theirs.encode(text, add_special_tokens=False)
