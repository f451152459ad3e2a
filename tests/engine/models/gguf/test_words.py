"""Tokenizers of GGUF files: byte-level ones and those of SentencePiece."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from gguf import GGUFWriter
from outrider.engine.models.gguf.definition import tokenizer_definition
from outrider.engine.models.gguf.header import GgufFile
from outrider.engine.models.gguf.splits import SPLITS
from outrider.engine.models.gguf.vocabulary import Vocabulary
from outrider.engine.text import TextError, Tokenizer
from outrider.engine.text.pieces import token_bytes
from transformers import GPT2Tokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer

from tests.engine.models.gguf.pieces import pieces
from tests.engine.models.gguf.words import (
    NORMAL,
    TEMPLATE,
    USER_DEFINED,
    add_byte_level,
    add_sentence_piece,
    write_words,
)
from tests.engine.text.makers import CORPUS, byte_level

TEXTS = [
    *CORPUS,
    "",
    " ",
    "  two  spaces\n\n\ttabs\r\n",
    "I'll say 12345 things, WE'RE done — naïve “çédille” 你好 👩‍👩‍👧",
    "<|im_start|>user <think> «a b» <|endoftext|>",
    "x=[1,2];\n\n\n    return x[0]  ",
]


def words_of(path: Path, cut: str = "qwen2", **more: Any) -> Path:
    return write_words(path / "model.gguf", "qwen2", add_byte_level, byte_level(), cut, **more)


def reference(kind: type[PreTrainedTokenizerFast]) -> tokenizers.Tokenizer:
    """The tokenizer of transformers over the words of `byte_level`."""
    made = byte_level()
    model = json.loads(made.to_str())["model"]
    theirs = kind(vocab=model["vocab"], merges=[tuple(pair) for pair in model["merges"]]).backend_tokenizer
    added = made.get_added_tokens_decoder().values()
    theirs.add_special_tokens([token for token in added if token.special])
    theirs.add_tokens([token for token in added if not token.special])
    return theirs


@pytest.mark.parametrize(("cut", "kind"), [("qwen2", Qwen2Tokenizer), ("gpt-2", GPT2Tokenizer)])
def test_byte_level_ids_are_those_of_transformers(cut: str, kind: Any, tmp_path: Path) -> None:
    ours, theirs = Tokenizer.load(words_of(tmp_path, cut)), reference(kind)
    for text in [*TEXTS, "e\u0301 and ki\u0301lo"]:
        expected = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, parse_special=True) == expected
        assert ours.decode(expected, keep_special=True) == theirs.decode(expected, skip_special_tokens=False)


@pytest.mark.parametrize(
    ("cut", "pieces"),
    [
        ("default", "Don ' t _ 123 45 _ABcDe () NN_ _x / N"),
        ("falcon", "Don ' t _ 123 45 _ABcDe () NN_ _x / N"),
        ("gpt-2", "Don 't _12345 _ABcDe () NN_ _x / N"),
        ("mpt", "Don 't _12345 _ABcDe () NN_ _x / N"),
        ("llama-bpe", "Don 't _ 123 45 _ABcDe ()NN _ _x /N"),
        ("llama-v3", "Don 't _ 123 45 _ABcDe ()NN _ _x /N"),
        ("dbrx", "Don 't _ 123 45 _ABcDe ()NN _ _x /N"),
        ("qwen2", "Don 't _ 1 2 3 4 5 _ABcDe ()NN _ _x /N"),
        ("deepseek-r1-qwen", "Don 't _ 1 2 3 4 5 _ABcDe ()NN _ _x /N"),
        ("hunyuan", "Don 't _ 1 2 3 4 5 _ABcDe ()NN _ _x /N"),
        ("qwen35", "Don 't _ 1 2 3 4 5 _ABcDe ()NN _ _x /N"),
        ("smollm", "Don 't _ 1 2 3 4 5 _ABcDe () NN_ _x / N"),
        ("command-r", "Don 't _ 1 2 3 4 5 _ABcDe () NN_ _x / N"),
        ("tekken", "Don 't _ 1 2 3 4 5 _ABc De ()NN _ _x /N"),
        ("gpt-4o", "Don't _ 123 45 _ABc De ()NN _ _x /N"),
        ("tiny_aya", "Don't _ 12 345 _ABc De ()NN _ _x /N"),
        ("deepseek-v3", "Don 't _ 123 45 _ABcDe ()NN _ _x /N"),
        ("deepseek-llm", "Don ' t _ 1 2 3 4 5 _ABcDe () N N _ _x / N"),
        ("deepseek-coder", "Don ' t _ 1 2 3 4 5 _ABcDe () N N _ _x / N"),
        ("spark2_5", "Don 't _ 1 2 3 4 5 _ABcDe () N N _ _x / N"),
        ("bloom", "Don't _12345 _ABcDe ()NN_ _x/ N"),
        ("viking", "Don't _ 1 2 3 4 5 _ABcDe ()NN_ _x/ N"),
        ("bailingmoe", "Don 't _ 1 2 3 4 5 _ABcDe ()NN _ _x /N"),
        ("seed-coder", "Don 't _ 1 2 3 4 5 _ABcDe () NN _ _x / N"),
        ("minicpm5", "Don 't _ 123 45 _ABcDe ()NN _ _x /N"),
        ("laguna", "Don 't _ 1 2 3 4 5 _ABcDe () NN _ _x / N"),
        ("jais-2", "Don 't _ 123 45 _ABcDe ()NN _ _x /N"),
        ("exaone-moe", "Don 't _ 1 2 3 4 5 _ABcDe ()N N _ _x /N"),
        ("ufakzeka", "Don 't _ 1 2 3 4 5 _ABcDe ()NN _ _x /N"),
    ],
)
def test_texts_are_cut_as_their_models_cut_them(cut: str, pieces: str, tmp_path: Path) -> None:
    found = cuts(words_of(tmp_path, cut), "Don't 12345 ABcDe()\n\n  x/\n")
    assert found == [piece.replace("_", " ").replace("N", "\n") for piece in pieces.split(" ")]


@pytest.mark.parametrize(
    ("cut", "pieces"),
    [
        ("qwen2", " abc你好|、カナ여기| क|्ष|ि"),
        ("qwen35", " abc你好|、カナ여기| क्षि"),
        ("deepseek-v3", " abc|你好|、|カナ|여기| क्षि"),
        ("deepseek-llm", " abc|你好|、|カナ여기| |क्षि"),
        ("deepseek-coder", " abc|你好|、|カナ여기| |क|्|ष|ि"),
        ("spark2_5", " abc|你好|、|カナ|여기| क्षि"),
        ("bloom", " abc你好|、|カナ여기| क्षि"),
    ],
)
def test_scripts_are_cut_as_their_models_cut_them(cut: str, pieces: str, tmp_path: Path) -> None:
    assert cuts(words_of(tmp_path, cut), " abc你好、カナ여기 क्षि") == pieces.split("|")


def cuts(path: Path, text: str) -> list[str]:
    """The pieces of ``text`` before they are merged."""
    made = tokenizers.Tokenizer.from_buffer(Tokenizer.load(path).definition())
    assert made.pre_tokenizer is not None
    return [token_bytes(piece).decode() for piece, _ in made.pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize("cut", SPLITS)
def test_every_name_has_cuts_that_lose_nothing(cut: str, tmp_path: Path) -> None:
    ours = Tokenizer.load(words_of(tmp_path, cut))
    assert all(ours.decode(ours.encode(text)) == text for text in TEXTS if "<|" not in text)


def test_tokens_have_their_roles(tmp_path: Path) -> None:
    path = words_of(tmp_path, bos_token_id=0, eos_token_id=2, padding_token_id=0, chat_template=TEMPLATE)
    ours, made = Tokenizer.load(path), byte_level()
    assert ours.special_tokens == {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}
    assert ours.added_token("<think>") == made.token_to_id("<think>")
    assert ours.eos_token_ids == (2, 0)
    assert ours.context_length == 512
    assert ours.vocabulary_size == made.get_vocab_size()
    assert ours.fingerprint == Tokenizer(made.to_str().encode()).fingerprint
    chat = [{"role": "user", "content": "hi <|im_end|>"}]
    text = "<|endoftext|><|im_start|>user\nhi <|im_end|><|im_end|>\n<|im_start|>assistant\n"
    ids = ours.encode_chat(chat)
    assert ours.decode(ids, keep_special=True) == text
    assert ids.count(2) == 1


@pytest.mark.parametrize("default", ["default", None])
def test_named_templates_are_for_chats_with_and_without_tools(default: str | None, tmp_path: Path) -> None:
    def add(writer: GGUFWriter) -> None:
        add_byte_level(writer, byte_level(), "qwen2")
        tool_use = {"name": "tool_use", "template": "tools"}
        writer.add_chat_template([{"name": "default", "template": "plain"}, tool_use] if default else [tool_use])

    ours = Tokenizer.load(write_words(tmp_path / "model.gguf", "qwen2", add))
    assert ours.decode(ours.encode_chat([])) == ("plain" if default else "tools")
    assert ours.decode(ours.encode_chat([], [{"type": "function"}])) == "tools"


@pytest.mark.parametrize(
    ("cut", "more", "begins", "ends"),
    [
        ("qwen2", {}, False, False),
        ("llama-bpe", {}, True, False),
        ("llama-bpe", {"add_bos_token": False}, False, False),
        ("qwen2", {"add_bos_token": True, "add_eos_token": True}, True, True),
    ],
)
def test_a_text_begins_and_ends_as_the_file_says(
    cut: str, more: dict[str, bool], begins: bool, ends: bool, tmp_path: Path
) -> None:
    ours = Tokenizer.load(words_of(tmp_path, cut, bos_token_id=1, eos_token_id=2, **more))
    plain = ours.encode("a", add_special=False)
    assert ours.encode("a") == [*([1] if begins else []), *plain, *([2] if ends else [])]


@pytest.mark.parametrize("none", [2**32 - 1, -1, 2**64 - 1])
@pytest.mark.parametrize(
    "role", ["bos_token_id", "eos_token_id", "unknown_token_id", "padding_token_id", "eot_token_id"]
)
def test_an_id_that_says_none_is_none(none: int, role: str, tmp_path: Path) -> None:
    def add(writer: GGUFWriter) -> None:
        add_byte_level(writer, byte_level(), "qwen2", add_bos_token=True, bos_token_id=1)
        writer.kv_data[0].pop(f"tokenizer.ggml.{role}", None)
        writer.add_key_value(f"tokenizer.ggml.{role}", none, 5 if none < 0 else 4 if none < 2**32 else 10)

    ours = Tokenizer.load(write_words(tmp_path / "model.gguf", "qwen2", add))
    assert ours.encode("a")[:-1] == ([] if role == "bos_token_id" else [1])
    assert ours.eos_token_ids == (0, 2)


def sentence_piece(text: str) -> list[str]:
    """SentencePiece's own way: joins the pair with the best score, the first of several, until none is a piece."""
    scores = {piece: score for piece, score, kind in pieces() if kind == NORMAL}
    parts = list(text)
    while True:
        joins = [(-scores[a + b], at) for at, (a, b) in enumerate(pairwise(parts)) if a + b in scores]
        if not joins:
            return parts
        at = min(joins)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def spaced_of(path: Path, **more: Any) -> Tokenizer:
    made = write_words(
        path / "model.gguf", "llama", add_sentence_piece, pieces(), bos_token_id=1, eos_token_id=2, **more
    )
    return Tokenizer.load(made)


def test_pieces_are_those_of_sentence_piece(tmp_path: Path) -> None:
    ours = spaced_of(tmp_path, add_space_prefix=False)
    dice, letters = random.Random(0), "".join(CORPUS)
    texts = ["def parse(argv)", *(letters[at : at + 40] for at in (dice.randrange(len(letters)) for _ in range(60)))]
    known = {piece: number for number, (piece, _, _) in enumerate(pieces())}
    for text in texts:
        assert ours.encode(text, add_special=False) == [known[part] for part in sentence_piece(text.replace(" ", "▁"))]


def test_a_leading_space_comes_and_goes(tmp_path: Path) -> None:
    ours = spaced_of(tmp_path)
    ids = ours.encode("def parse")
    assert ids[0] == 1
    assert ours.decode(ids) == "def parse"
    assert ids[1:] == spaced_of(tmp_path, add_space_prefix=False).encode(" def parse", add_special=False)


def test_what_is_no_piece_becomes_bytes(tmp_path: Path) -> None:
    ours = spaced_of(tmp_path, add_space_prefix=False, add_bos_token=False)
    assert ours.encode("Ω") == [3 + byte for byte in "Ω".encode()]
    assert ours.byte_ids == set(range(3, 259))
    assert ours.decode(ours.encode("aΩ😀b")) == "aΩ😀b"


def test_user_defined_pieces_are_not_cut(tmp_path: Path) -> None:
    ours = spaced_of(tmp_path, add_space_prefix=False, add_bos_token=False)
    assert ours.encode("<tag><s>")[0] == 259
    assert 1 not in ours.encode("<s>")
    assert ours.encode("<s>", parse_special=True) == [1]


def test_spaces_of_user_defined_pieces_are_bars(tmp_path: Path) -> None:
    vocabulary = [*pieces(), (" " * 6, -1000.0, USER_DEFINED), (" " * 12, -1000.0, USER_DEFINED)]
    path = write_words(tmp_path / "model.gguf", "gemma3", add_sentence_piece, vocabulary, add_space_prefix=False)
    ours = Tokenizer.load(path)
    assert ours.encode(" " * 12, add_special=False) == [len(vocabulary) - 1]
    assert ours.decode([len(vocabulary) - 2]) == " " * 6


def changed(key: str, value: Any = None, kind: int = 9, items: int | None = None) -> Any:
    """Adds words and sets a key anew; None leaves it out."""

    def add(writer: GGUFWriter) -> None:
        add_byte_level(writer, byte_level(), "qwen2")
        writer.kv_data[0].pop(f"tokenizer.ggml.{key}", None)
        if value is not None:
            writer.add_key_value(f"tokenizer.ggml.{key}", value, kind, items)

    return add


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (changed("model"), "tokenizer.ggml.model is missing; it must be a string"),
        (changed("model", "rwkv", 8), "tokenizer.ggml.model is 'rwkv'; it must be one of gpt2, llama"),
        (changed("tokens"), "tokenizer.ggml.tokens is missing; it must be a list of strings"),
        (changed("tokens", [1, 2], 9, 5), "tokenizer.ggml.tokens is a list of 2; it must be a list of strings"),
        (changed("tokens", ["a", "a"], 9, 8), "tokenizer.ggml.token_type is a list of [0-9]+; it must be a list of 2"),
        (changed("token_type", ["a"], 9, 8), "tokenizer.ggml.token_type is a list of 1; it must be a list of numbers"),
        (changed("pre", "gpt-9", 8), "tokenizer.ggml.pre is 'gpt-9'; it must be one that docs/models.md lists"),
        (changed("merges"), "tokenizer.ggml.merges is missing; it must be a list of strings"),
        (changed("merges", ["ab"], 9, 8), "tokenizer.ggml.merges holds 'ab', which is no pair of tokens whose join is"),
        (changed("merges", ["no such"], 9, 8), "tokenizer.ggml.merges holds 'no such', which is no pair of tokens"),
        (changed("merges", ["a <|im_end|>"], 9, 8), "tokenizer.ggml.merges holds 'a <.im_end.>', which is no pair"),
        (changed("bos_token_id", 99999, 4), "bos_token_id is 99999; it must be a token id from 0 to [0-9]+"),
        (changed("bos_token_id", True, 7), "bos_token_id is True; it must be a token id from 0 to [0-9]+"),
        (changed("add_bos_token", 1, 4), "tokenizer.ggml.add_bos_token is 1; it must be true or false"),
        (changed("add_bos_token", True, 7), "add_bos_token is True; it must be false, since the file names no"),
    ],
)  # fmt: skip
def test_a_damaged_vocabulary_is_refused_with_one_sentence(add: Any, message: str, tmp_path: Path) -> None:
    path = write_words(tmp_path / "model.gguf", "qwen2", add)
    with pytest.raises(TextError, match=message) as raised:
        Tokenizer.load(path)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


def test_a_token_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = write_words(tmp_path / "model.gguf", "llama", add_sentence_piece, [*pieces(), ("<s>", 0.0, NORMAL)])
    with pytest.raises(TextError, match=r"tokenizer.ggml.tokens holds '<s>'"):
        Tokenizer.load(path)


def test_a_file_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    path = words_of(tmp_path).rename(tmp_path / "sha256-0123abcd")
    assert Tokenizer.load(path).encode("def")
    (tmp_path / "sha256-4567").write_bytes(b"other")
    with pytest.raises(TextError, match="sha256-4567"):
        Tokenizer.load(tmp_path / "sha256-4567")


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"{}")
    with pytest.raises(TextError, match="is not a GGUF file"):
        Tokenizer.load(tmp_path / "model.gguf")


def test_the_definition_is_one_of_the_same_tokenizer(tmp_path: Path) -> None:
    path = words_of(tmp_path)
    metadata = GgufFile.open(path).metadata
    ours, again = Tokenizer.load(path), Tokenizer(tokenizer_definition(metadata, Vocabulary.read(metadata)))
    assert Tokenizer(ours.definition()).fingerprint == again.fingerprint
    assert [ours.encode(text) for text in TEXTS] == [again.encode(text) for text in TEXTS]
