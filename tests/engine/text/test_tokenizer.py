"""The tokenizer of a model directory: encoding, special tokens, fingerprint, and clear refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
from outrider.engine.text import TextError, Tokenizer
from tokenizers.processors import TemplateProcessing

from tests.engine.text.makers import CHATML, CORPUS, byte_level, tokenizer, write


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(
        tmp_path_factory.mktemp("model"),
        byte_level(),
        chat_template=CHATML,
        eos_token={"content": "<|endoftext|>", "special": True},
    )


@pytest.fixture(scope="module")
def model(directory: Path) -> Tokenizer:
    return Tokenizer.load(directory)


def test_text_comes_back_from_its_ids(model: Tokenizer) -> None:
    for text in CORPUS:
        assert model.decode(model.encode(text)) == text


def test_a_batch_encodes_as_its_texts_one_by_one(model: Tokenizer) -> None:
    assert model.encode_batch(CORPUS) == [model.encode(text) for text in CORPUS]


def test_the_name_of_a_special_token_is_plain_text_by_default(model: Tokenizer) -> None:
    end = model.special_tokens["<|endoftext|>"]
    assert model.encode("<|endoftext|>", parse_special=True) == [end]
    plain = model.encode("<|endoftext|>")
    assert end not in plain
    assert model.decode(plain) == "<|endoftext|>"


def test_added_tokens_behind_the_vocabulary_have_the_same_ids_whether_special_tokens_are_parsed_or_not(
    model: Tokenizer,
) -> None:
    ids = [model.added_token("<think>"), model.added_token("«a b»")]
    assert model.encode("<think>«a b»") == model.encode("<think>«a b»", parse_special=True) == ids


def test_special_tokens_are_left_out_of_text_unless_kept(model: Tokenizer) -> None:
    ids = model.encode("a<|endoftext|>b", parse_special=True)
    assert model.decode(ids) == "ab"
    assert model.decode(ids, keep_special=True) == "a<|endoftext|>b"


def test_files_state_the_context(model: Tokenizer) -> None:
    assert model.context_length == 512


def test_the_fingerprint_is_that_of_the_pairs_alone(model: Tokenizer, tmp_path: Path) -> None:
    same = Tokenizer.load(write(tmp_path, byte_level()))
    other = byte_level()
    other.add_tokens(["<extra>"])
    assert len(model.fingerprint) == 64
    assert same.fingerprint == model.fingerprint
    assert tokenizer(other).fingerprint != model.fingerprint


def test_no_token_is_longer_than_the_longest(model: Tokenizer) -> None:
    text = "".join(CORPUS)
    assert len(text.encode()) <= model.longest_token * len(model.encode(text))
    assert model.longest_token >= len("<|endoftext|>")


def test_an_id_outside_the_vocabulary_is_named(model: Tokenizer) -> None:
    for bad in (model.vocabulary_size, -1):
        with pytest.raises(TextError, match=f"token id {bad}"):
            model.decode([1, bad])


def test_an_unknown_special_token_is_named(model: Tokenizer) -> None:
    model.require_special(["<|im_end|>"])
    with pytest.raises(TextError, match=r"'<\|nope\|>'"):
        model.require_special(["<|nope|>"])


def test_truncation_and_padding_in_the_file_are_not_obeyed(tmp_path: Path) -> None:
    made = byte_level()
    made.enable_truncation(3)
    made.enable_padding(length=8)
    loaded = Tokenizer.load(write(tmp_path, made))
    assert len(loaded.encode(CORPUS[0])) > 8
    assert len(loaded.encode("a")) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", None, "tokenizer.json cannot be read: No such file"),
        ("tokenizer.json", "{", "tokenizer.json is corrupt"),
        ("tokenizer.json", '{"model": {"type": "Nope"}}', "tokenizer.json is corrupt"),
        ("config.json", "{", "config.json is not valid JSON"),
        ("config.json", "[]", "config.json holds a JSON list where an object belongs"),
    ],
)
def test_a_bad_file_is_named_in_one_sentence(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    path = write(tmp_path, byte_level()) / name
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(TextError) as caught:
        Tokenizer.load(tmp_path)
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bos", [False, True], ids=["bare", "behind a beginning-of-text token"])
def test_a_prompt_becomes_the_ids_that_transformers_makes_of_it(tmp_path: Path, bos: bool) -> None:
    from transformers import PreTrainedTokenizerFast

    made = byte_level()
    if bos:
        made.post_processor = TemplateProcessing(single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)])
    directory = write(tmp_path, made, bos_token="<|im_start|>")
    theirs, ours = PreTrainedTokenizerFast.from_pretrained(directory), Tokenizer.load(directory)
    for text in ("a<|im_end|> b<|endoftext|>", "<|im_start|>a", " <think> x", ""):
        for add in (True, False):
            expected = theirs(text, add_special_tokens=add)["input_ids"]
            assert ours.encode(text, parse_special=True, add_special=add) == expected
