"""A ``tokenizer.json`` from a file's vocabulary, for the ``tokenizers`` library."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from outrider.engine.errors import ModelError
from outrider.engine.models.gguf.metadata import FLOAT32, Metadata
from outrider.engine.models.gguf.splits import SPLITS
from outrider.engine.models.gguf.vocabulary import BYTE, CONTROL, ROLES, UNKNOWN, UNUSED, USER_DEFINED, Vocabulary

_BAR = "\u2581"
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
_MOST_SPLIT = 256


def tokenizer_definition(metadata: Metadata, vocabulary: Vocabulary) -> bytes:
    """The contents of ``tokenizer.json``.

    Raises:
        ModelError: a key is missing or has a value that is not supported.
    """
    make = _byte_level if vocabulary.model == "gpt2" else _sentence_piece
    texts = _texts(vocabulary)
    definition = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(vocabulary, texts),
        **make(metadata, vocabulary, _ids(metadata, texts)),
    }
    return json.dumps(definition, ensure_ascii=False, separators=(",", ":")).encode()


def _texts(vocabulary: Vocabulary) -> Sequence[str]:
    """Texts by id; empty for ids that only fill the embedding.

    Converters to GGUF write SentencePiece's bar in user-defined tokens as a space, which is undone here.
    """
    texts = [
        "" if kind == UNUSED and text == f"[PAD{number}]" else text
        for number, (text, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
    ]
    if vocabulary.model == "llama":
        for number, kind in enumerate(vocabulary.types):
            if kind == USER_DEFINED:
                texts[number] = texts[number].replace(" ", _BAR)
    return texts


def _ids(metadata: Metadata, texts: Sequence[str]) -> dict[str, int]:
    ids = {text: number for number, text in enumerate(texts) if text}
    if len(ids) != sum(map(bool, texts)):
        twice = next(text for number, text in enumerate(texts) if text and ids[text] != number)
        raise ModelError(f"{metadata.path}: tokenizer.ggml.tokens holds {twice!r:.60} twice")
    if not ids:
        raise metadata.wrong("tokenizer.ggml.tokens", "a list of strings, some of them not empty")
    return ids


def _added_tokens(vocabulary: Vocabulary, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Tokens that are found in a text before it is cut; control tokens are special."""
    kinds = {CONTROL: True, UNKNOWN: True, USER_DEFINED: False}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": number, "content": texts[number], **plain, "special": kinds[kind]}
        for number, kind in enumerate(vocabulary.types)
        if kind in kinds and texts[number].strip(_BAR)
    ]


def _byte_level(metadata: Metadata, vocabulary: Vocabulary, ids: Mapping[str, int]) -> dict[str, Any]:
    name = metadata.text("tokenizer.ggml.pre", "default")
    if name not in SPLITS:
        raise metadata.wrong("tokenizer.ggml.pre", "one that docs/models.md lists, such as llama-bpe, qwen2 or tekken")
    split = SPLITS[name]
    return {
        "normalizer": split.normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": list(split.steps)},
        "post_processor": _around(metadata, vocabulary, split.adds_bos),
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "ignore_merges": split.whole_first,
            "vocab": ids,
            "merges": _given_merges(metadata, ids),
        },
    }


def _sentence_piece(metadata: Metadata, vocabulary: Vocabulary, ids: Mapping[str, int]) -> dict[str, Any]:
    spaced = metadata.flag("tokenizer.ggml.add_space_prefix", True)
    bar = {"type": "Replace", "pattern": {"String": " "}, "content": _BAR}
    space = {"type": "Replace", "pattern": {"String": _BAR}, "content": " "}
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if spaced else []
    return {
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": _BAR}, bar]}
        if spaced
        else bar,
        "pre_tokenizer": None,
        "post_processor": _around(metadata, vocabulary, True),
        "decoder": {"type": "Sequence", "decoders": [space, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]},
        "model": {
            "type": "BPE",
            "unk_token": vocabulary.names.get("unk_token") or ("<unk>" if "<unk>" in ids else None),
            "fuse_unk": True,
            "byte_fallback": BYTE in vocabulary.types,
            "vocab": ids,
            "merges": _merges_by_score(metadata, vocabulary, ids),
        },
    }


def _around(metadata: Metadata, vocabulary: Vocabulary, adds_bos: bool) -> dict[str, Any] | None:
    """The processor that puts the model's tokens around a text."""
    before = _edge(metadata, vocabulary, "bos_token", adds_bos)
    after = _edge(metadata, vocabulary, "eos_token", False)
    if not before and not after:
        return None

    def template(letter: str, number: int) -> list[dict[str, Any]]:
        edges = [[{"SpecialToken": {"id": text, "type_id": number}} for text in edge] for edge in (before, after)]
        return [*edges[0], {"Sequence": {"id": letter, "type_id": number}}, *edges[1]]

    used = {text: {"id": text, "ids": [vocabulary.tokens.index(text)], "tokens": [text]} for text in (*before, *after)}
    single = template("A", 0)
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, *template("B", 1)],
        "special_tokens": used,
    }


def _edge(metadata: Metadata, vocabulary: Vocabulary, role: str, default: bool) -> list[str]:
    key = f"tokenizer.ggml.add_{role}"
    if not metadata.flag(key, default and role in vocabulary.names):
        return []
    if role not in vocabulary.names and ROLES[role] not in metadata:
        raise metadata.wrong(key, f"false, since the file names no {role}")
    return [vocabulary.names[role]] if role in vocabulary.names else []


def _given_merges(metadata: Metadata, ids: Mapping[str, int]) -> list[tuple[str, str]]:
    merges = []
    for merge in metadata.texts("tokenizer.ggml.merges"):
        cut = merge.find(" ", 1)
        pair = merge[:cut], merge[cut + 1 :]
        if cut < 0 or pair[0] not in ids or pair[1] not in ids or pair[0] + pair[1] not in ids:
            why = "which is no pair of tokens whose join is a token"
            raise ModelError(f"{metadata.path}: tokenizer.ggml.merges holds {merge!r:.60}, {why}")
        merges.append(pair)
    return merges


def _merges_by_score(metadata: Metadata, vocabulary: Vocabulary, ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """SentencePiece's merges: any two tokens whose join is a token, that with the highest score first.

    SentencePiece merges by the score of the join (Kudo and Richardson 2018), where ``tokenizers`` goes by a list.
    """
    key = "tokenizer.ggml.scores"
    scores = metadata.numbers(key, (FLOAT32,))
    if len(scores) != len(vocabulary.tokens):
        raise metadata.wrong(key, f"a list of {len(vocabulary.tokens)} numbers, one a token")
    for number, kind in enumerate(vocabulary.types):
        if kind == USER_DEFINED:  # which SentencePiece never cuts; converters give them a low score
            scores[number] = math.inf
    joins = sorted(ids.items(), key=lambda item: -scores[item[1]])
    return [
        pair for text, _ in joins for pair in sorted(_halves(text, ids), key=lambda pair: (ids[pair[0]], ids[pair[1]]))
    ]


def _halves(text: str, ids: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """The pairs of tokens that ``text`` is made of; tokens of `_MOST_SPLIT` characters and more are not cut."""
    if len(text) >= _MOST_SPLIT:
        return
    for cut in range(1, len(text)):
        if text[:cut] in ids and text[cut:] in ids:
            yield text[:cut], text[cut:]
