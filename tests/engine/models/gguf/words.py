"""Writes vocabularies into GGUF files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
from gguf import GGUFWriter

from tests.engine.models.gguf.files import write_file

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def add_byte_level(writer: GGUFWriter, made: tokenizers.Tokenizer, cut: str, **more: Any) -> None:
    """The vocabulary of a byte-level tokenizer, with two ids that only fill the embedding behind it."""
    model = json.loads(made.to_str())["model"]
    added = made.get_added_tokens_decoder()
    texts = {number: text for text, number in made.get_vocab(with_added_tokens=True).items()}
    count = len(texts)
    types = [NORMAL] * count
    for number, token in added.items():
        types[number] = CONTROL if token.special else USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(cut)
    writer.add_token_list([*(texts[number] for number in range(count)), f"[PAD{count}]", f"[PAD{count + 1}]"])
    writer.add_token_types([*types, UNUSED, UNUSED])
    writer.add_token_merges([f"{left} {right}" for left, right in model["merges"]])
    _add(writer, more)


def add_sentence_piece(writer: GGUFWriter, pieces: list[tuple[str, float, int]], **more: Any) -> None:
    """A vocabulary of SentencePiece: texts, scores and types."""
    texts, scores, types = zip(*pieces, strict=True)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(list(texts))
    writer.add_token_scores(list(scores))
    writer.add_token_types(list(types))
    _add(writer, more)


def add_words_of(writer: GGUFWriter, tokens: list[str], types: list[int], **more: Any) -> None:
    """A byte-level vocabulary that begins with these tokens."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    letters = [letter for letter in "<|>_/cdeimnrstux." if letter not in tokens]
    writer.add_token_list([*tokens, *letters, "im"])
    writer.add_token_types([*types, *[NORMAL] * (len(letters) + 1)])
    writer.add_token_merges(["i m"])
    _add(writer, more)


def write_words(path: Path, architecture: str, add: Any, *args: Any, **more: Any) -> Path:
    """A file with a vocabulary alone."""

    def fill(writer: GGUFWriter) -> None:
        writer.add_context_length(512)
        add(writer, *args, **more)

    return write_file(path, architecture, fill)


def _add(writer: GGUFWriter, more: dict[str, Any]) -> None:
    for name, value in more.items():
        key = "tokenizer.chat_template" if name == "chat_template" else f"tokenizer.ggml.{name}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_string(key, value)
