"""A real GGUF file beside the Hugging Face directory of the same model.

TEST_GGUF names the file, TEST_MODEL the directory. All texts are composed (NFC): a directory that was made from a GGUF
file lacks the step that composes them.
"""

from __future__ import annotations

import os
import random
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFReader, quants
from outrider.engine.models.config import ModelConfig
from outrider.engine.models.gguf.checkpoint import GgufCheckpoint
from outrider.engine.models.gguf.header import GgufFile
from outrider.engine.models.gguf.names import hugging_face_name
from outrider.engine.text import Tokenizer
from outrider.native.quantized import QuantizedWeight, dequantized
from transformers import PreTrainedTokenizerFast

GGUF, DIRECTORY = os.environ.get("TEST_GGUF"), os.environ.get("TEST_MODEL")
pytestmark = pytest.mark.skipif(not (GGUF and DIRECTORY), reason="TEST_GGUF and TEST_MODEL name no real model")
_WORDS = [
    "naïve çédille", "Привет, мир", "你好，世界", "こんにちは", "안녕하세요", "שלום", "مرحبا بالعالم",
    "नमस्ते दुनिया", "Ελληνικά", "👩‍👩‍👧 🏳️‍🌈 😀👍🏽", "1234567890", "3.14159e-10", "0xDEADBEEF",
    "10,000.50 €", "I'LL we've don't", "a_b-c/d\\e", "…—“”‘’", "½ ² ™ ﬁ", "\t\ttabs", "   ", "\n\n\n",
    " \r\n", "x", "\u200b\u00a0\u3000", "<|im_end|>", "<end_of_turn>", "<tool_call>", "<0x0A>", "▁▁ ▁",
    "[PAD1]", "<bos>hi</s>", "if (a && b) { return *p++; }",
    "def f(x: int) -> str:\n    return f'{x!r}'\n", "SELECT * FROM t;",
]  # fmt: skip
_CODE = Path(__file__).read_text()


def texts() -> Iterator[str]:
    """200 texts: single words of many kinds, joined ones, and pieces of code."""
    dice = random.Random(0)
    yield from _WORDS
    for _ in range(100):
        yield dice.choice(["", " ", "\n", "  "]).join(dice.choices(_WORDS, k=dice.randrange(2, 9)))
    for _ in range(200 - 100 - len(_WORDS)):
        at = dice.randrange(len(_CODE))
        yield _CODE[at : at + dice.randrange(1, 400)]


def chats() -> Iterator[list[dict[str, str]]]:
    """20 chats of one to five messages."""
    dice = random.Random(1)
    plain = [word for word in _WORDS if not word.startswith("<")]
    for _ in range(20):
        start = [{"role": "system", "content": "Answer briefly."}] if dice.random() < 0.5 else []
        turns = [("user", "assistant")[turn % 2] for turn in range(dice.choice([1, 3, 5]))]
        yield [*start, *({"role": role, "content": " ".join(dice.choices(plain, k=3))} for role in turns)]


@pytest.fixture(scope="module")
def pair() -> tuple[Tokenizer, PreTrainedTokenizerFast]:
    """Ours of the file, and transformers' of the directory."""
    return Tokenizer.load(Path(str(GGUF))), PreTrainedTokenizerFast.from_pretrained(DIRECTORY)


def test_ids_are_those_of_transformers(pair: tuple[Tokenizer, PreTrainedTokenizerFast]) -> None:
    ours, theirs = pair
    composed = [unicodedata.normalize("NFC", text) for text in texts()]
    assert len(composed) == 200
    for text in composed:
        for special in (False, True):
            expected = theirs.encode(text, split_special_tokens=not special)
            assert ours.encode(text, parse_special=special) == expected, text
        assert ours.decode(expected) == theirs.decode(expected, skip_special_tokens=True)


def test_chats_are_those_of_transformers(pair: tuple[Tokenizer, PreTrainedTokenizerFast]) -> None:
    ours, theirs = pair
    if not ours.has_chat_template:
        pytest.skip("the model has no chat template")
    for chat in chats():
        expected: Any = theirs.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        assert ours.encode_chat(chat) == expected


def test_the_configuration_is_that_of_the_directory() -> None:
    ours, theirs = ModelConfig.load(Path(str(GGUF))), ModelConfig.load(Path(str(DIRECTORY)))
    for name in ModelConfig.__dataclass_fields__:
        if name != "dtype":
            assert getattr(ours, name) == getattr(theirs, name)


def test_numbers_are_those_of_gguf_to_the_bit() -> None:
    path, rows, ignored = Path(str(GGUF)), 600, list[str]()
    file = GgufFile.open(path)
    checkpoint, architecture = GgufCheckpoint(file), file.metadata.text("general.architecture")
    shift = 1.0 if architecture == "gemma3" else 0.0
    for theirs in GGUFReader(path).tensors:
        name = str(hugging_face_name(architecture, theirs.name))
        if architecture == "llama" and theirs.name.split(".")[-2] in ("attn_q", "attn_k"):  # in another order
            ignored.append(name)
            continue
        ours = checkpoint.take(name, file.tensors[theirs.name].shape)
        expected = torch.from_numpy(np.array(quants.dequantize(theirs.data[:rows], theirs.tensor_type)))
        if isinstance(ours, torch.Tensor):
            assert torch.equal(ours.float()[:rows], expected - (shift if name.endswith("norm.weight") else 0))
        else:
            assert torch.equal(dequantized(_First(ours, rows), torch.float32), expected)
        checkpoint.release(name)
    checkpoint.finish(ignored)


class _First:
    """The first rows of a weight."""

    def __init__(self, weight: QuantizedWeight, rows: int) -> None:
        self.format, self.quants = weight.format, weight.quants
        self.shape = min(rows, weight.shape[0]), weight.shape[1]
