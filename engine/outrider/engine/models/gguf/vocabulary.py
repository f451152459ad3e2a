"""The vocabulary in a file's metadata: tokens, their types, and the ids with a meaning."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.engine.models.gguf.metadata import INT32, NONE, UINT32, Metadata

MODELS = ("gpt2", "llama")
"""Values of ``tokenizer.ggml.model``: byte-level BPE, and SentencePiece."""
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Types of tokens (ggml's docs/gguf.md)."""
ROLES = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
    **{f"fim_{part}": f"tokenizer.ggml.fim_{part}_token_id" for part in ("pre", "suf", "mid", "pad", "rep", "sep")},
}
"""Keys of the ids of tokens with a role."""
_ENDS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A file's vocabulary.

    Attributes:
        model: one of `MODELS`.
        tokens: texts by id.
        types: types by id.
        names: texts of the tokens with a role (``bos_token``, ...).
        eos_ids: ids that the metadata says end a text or a turn.
    """

    model: str
    tokens: Sequence[str]
    types: Sequence[int]
    names: dict[str, str]
    eos_ids: tuple[int, ...]

    @classmethod
    def read(cls, metadata: Metadata) -> Vocabulary:
        """The vocabulary; `ModelError` if a key is missing or wrong."""
        model = metadata.text("tokenizer.ggml.model")
        if model not in MODELS:
            raise metadata.wrong("tokenizer.ggml.model", "one of " + ", ".join(MODELS))
        tokens = metadata.texts("tokenizer.ggml.tokens")
        types = _types(metadata, len(tokens))
        roles = {role: _id(metadata, key, len(tokens)) for role, key in ROLES.items()}
        names = {role: tokens[number] for role, number in roles.items() if number is not None}
        return cls(model, tokens, types, names, _eos_ids(metadata, len(tokens)))


def _types(metadata: Metadata, count: int) -> Sequence[int]:
    key = "tokenizer.ggml.token_type"
    if key not in metadata:
        return array("i", [NORMAL]) * count
    types = metadata.numbers(key, (INT32, UINT32))
    if len(types) != count:
        raise metadata.wrong(key, f"a list of {count} numbers, one a token")
    return types


def _id(metadata: Metadata, key: str, count: int) -> int | None:
    value = metadata.value(key)
    if value is None or value in NONE:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < count:
        raise metadata.wrong(key, f"a token id from 0 to {count - 1}")
    return value


def _eos_ids(metadata: Metadata, count: int) -> tuple[int, ...]:
    given = [_id(metadata, key, count) for key in _ENDS]
    return tuple(dict.fromkeys(number for number in given if number is not None))
