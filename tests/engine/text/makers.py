"""Small tokenizers of every kind of decoder, trained or written on the spot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
from outrider.engine.text import Tokenizer
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers

CORPUS = [
    "def parse_args(argv):\n    return argv[1:]\n",
    "for naïve in “quotes”: print('çédille — Привет 你好 👩‍👩‍👧 🏳️‍🌈')\n",
    "class Tokenizer:\n        '''Doc'''\n        pass\n" * 3,
]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_level(vocabulary_size: int = 400) -> tokenizers.Tokenizer:
    """GPT-2's scheme: byte-level BPE."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    made.train_from_iterator(CORPUS, trainer)
    made.add_tokens([AddedToken("<think>", special=False), AddedToken("«a b»", special=False)])
    return made


def byte_fallback() -> tokenizers.Tokenizer:
    """Llama 2's scheme: SentencePiece BPE with byte fallback and a leading space that the text does not have."""
    trained = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(CORPUS[:1], trainers.BpeTrainer(vocab_size=80))
    model = json.loads(trained.to_str())["model"]
    first = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces = [*first, *(token for token in model["vocab"] if token not in first)]
    merges = [tuple(pair) for pair in model["merges"]]
    vocabulary = {token: number for number, token in enumerate(pieces)}
    made = tokenizers.Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    return made


def metaspace() -> tokenizers.Tokenizer:
    """Metaspace pieces without byte fallback."""
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=200, special_tokens=["<unk>", "</s>"]))
    return made


def word_piece() -> tokenizers.Tokenizer:
    """BERT's scheme: ``##`` continues a word."""
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece(cleanup=True)
    made.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]", "[SEP]"]))
    return made


def bare() -> tokenizers.Tokenizer:
    """Words, and no decoder at all."""
    made = tokenizers.Tokenizer(models.WordLevel(unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.train_from_iterator(CORPUS, trainers.WordLevelTrainer(special_tokens=["[UNK]"]))
    return made


KINDS = {made.__name__: made for made in (byte_level, byte_fallback, metaspace, word_piece, bare)}


def tokenizer(made: tokenizers.Tokenizer, **more: Any) -> Tokenizer:
    """Ours over ``made``."""
    return Tokenizer(made.to_str().encode(), **more)


def write(directory: Path, made: tokenizers.Tokenizer, **config: Any) -> Path:
    """A model directory with the files that say how text is handled."""
    made.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    (directory / "config.json").write_text(json.dumps({"max_position_embeddings": 512, "eos_token_id": 0}))
    return directory
