"""Finds the marks around a model's thoughts, by its tokenizer and its chat template. Nothing here imports torch."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from outrider.engine.requests.parameters import Mark, Thought
from outrider.engine.text.errors import TextError
from outrider.engine.text.tokenizer import Tokenizer


class Texts(NamedTuple):
    """What begins a thought, what ends it, and what begins an answer without one where that has a mark."""

    start: str
    end: str
    plain: str = ""


STYLES = {
    "harmony": Texts(
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
        "<|channel|>final<|message|>",
    ),
    "mistral": Texts("[THINK]", "[/THINK]"),
    "granite": Texts("Here is my thought process:", "Here is my response:"),
    "think": Texts("<think>", "</think>"),
}
"""Marks by name: the channels of gpt-oss (https://cookbook.openai.com/articles/openai-harmony), the marks of Mistral's
Magistral, of IBM's Granite 3.2, and of DeepSeek-R1, Qwen3, Granite 3.3 and most others."""
NAMES = ("auto", "off", *STYLES)
_SHOWN = {"harmony": "analysis"}
"""What a template with a style's marks contains, if it is not the first mark."""


def marks_of(tokenizer: Tokenizer, wanted: str = "auto", start: str = "", end: str = "") -> Thought | None:
    """The marks of the model's thoughts; None if it has none.

    ``wanted`` is one of `NAMES`; ``auto`` takes the first style whose marks the chat template contains. ``start`` and
    ``end``, given together, are the marks instead. `TextError` for marks that are no tokens, or if one is missing.
    """
    if bool(start) != bool(end):
        raise TextError("the marks of thoughts are two: one that begins a thought, and one that ends it")
    if start:
        return _thought(tokenizer, Texts(start, end))
    if wanted == "off":
        return None
    if wanted != "auto":
        return _thought(tokenizer, STYLES[wanted])
    source = tokenizer.template or ""
    shown = next((texts for name, texts in STYLES.items() if _shows(source, name, texts)), None)
    with suppress(TextError):  # a vocabulary without these marks
        return None if shown is None else _thought(tokenizer, shown)
    return None


def _shows(source: str, name: str, texts: Texts) -> bool:
    """Whether a template contains a style's marks. Those that only remove old thoughts have the end mark alone."""
    if name in _SHOWN:
        return _SHOWN[name] in source and texts.start.partition(_SHOWN[name])[0] in source
    return texts.start in source or texts.end in source


def _thought(tokenizer: Tokenizer, texts: Texts) -> Thought:
    plain = _mark(tokenizer, texts.plain) if texts.plain else None
    return Thought(_mark(tokenizer, texts.start), _mark(tokenizer, texts.end), plain)


def _mark(tokenizer: Tokenizer, text: str) -> Mark:
    """The mark ``text``: its tokens where one is an added token, since text cannot spell those; else also its text."""
    ids = tuple(tokenizer.encode(text, parse_special=True, add_special=False))
    if not ids:
        raise TextError(f"the mark {text!r} of thoughts has no tokens in this vocabulary")
    return Mark(ids, "" if tokenizer.has_added(ids) else text)
