"""How byte-level tokenizers cut a text before merging (``tokenizer.ggml.pre``), for the ``tokenizers`` library.

The patterns are those of the models' own ``tokenizer.json``; the names are llama.cpp's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_QWEN2 = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}|{_SIGNS}|{_SPACES}"
_LLAMA3 = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_SIGNS}|{_SPACES}"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)


class Split(NamedTuple):
    """How a text is cut.

    Attributes:
        steps: pre-tokenizers of ``tokenizers``.
        normalizer: its normalizer.
        whole_first: whether a piece that is a token as a whole stays whole.
        adds_bos: whether a text begins with the token for that, where the file does not say.
    """

    steps: tuple[dict[str, Any], ...]
    normalizer: dict[str, Any] | None = None
    whole_first: bool = False
    adds_bos: bool = False


def _bytes(use_regex: bool) -> dict[str, Any]:
    """The pre-tokenizer to GPT-2's alphabet of bytes, after GPT-2's own cuts if ``use_regex``."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": use_regex}


def _cut(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


_GPT2 = Split((_bytes(True),))
_LLAMA = Split((_cut(_LLAMA3), _bytes(False)), whole_first=True, adds_bos=True)
_FALCON = Split(
    (
        {"type": "Punctuation", "behavior": "Contiguous"},
        _bytes(True),
        {"type": "Digits", "individual_digits": False},
        _cut("[0-9][0-9][0-9]"),
    )
)

SPLITS = {
    "default": _FALCON,
    "falcon": _FALCON,
    "gpt-2": _GPT2,
    "llama-bpe": _LLAMA,
    "llama3": _LLAMA,
    "qwen2": Split((_cut(_QWEN2), _bytes(False)), {"type": "NFC"}),
    "smollm": Split(({"type": "Digits", "individual_digits": True}, _bytes(True))),
    "tekken": Split((_cut(_TEKKEN), _bytes(False)), whole_first=True, adds_bos=True),
}
"""Splits by the value of ``tokenizer.ggml.pre``; ``default``, which stands where it is absent, is Falcon's."""
