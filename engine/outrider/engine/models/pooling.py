"""How the states of a text's tokens become its embedding, as the files of a model say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from outrider.engine.errors import ModelError
from outrider.engine.models.gguf.header import GgufFile, is_gguf

Pooling = Literal["last", "mean"]
"""The last token's state, or the mean of all; behind the last norm, and then divided by its length."""
FILE = Path("1_Pooling", "config.json")
"""Where sentence-transformers keeps it in a model's directory."""

_FLAGS: dict[str, Pooling] = {
    "pooling_mode_lasttoken": "last",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean",
}
_NAMES: dict[str, Pooling] = {"lasttoken": "last", "mean": "mean", "mean_sqrt_len_tokens": "mean"}
_NUMBERS: dict[int, Pooling] = {1: "mean", 3: "last"}
"""Numbers of `enum llama_pooling_type` (llama.cpp, include/llama.h)."""


def pooling_of(path: Path) -> Pooling:
    """The pooling of a directory or GGUF file; that of the last token where it says nothing.

    Raises:
        ModelError: the files ask for another pooling.
    """
    return _of_gguf(path) if is_gguf(path) else _of_directory(path)


def _of_directory(directory: Path) -> Pooling:
    file = directory / FILE
    try:
        told = json.loads(file.read_bytes())
    except FileNotFoundError:
        return "last"
    except ValueError as error:
        raise ModelError(f"{file} is not valid JSON: {error}") from None
    told = told if isinstance(told, dict) else {}
    wanted = [told["pooling_mode"]] if told.get("pooling_mode") else [key for key, on in told.items() if on is True]
    modes = [name for name in wanted if name in _NAMES or str(name).startswith("pooling_mode_")]
    known = (_NAMES | _FLAGS).get(modes[0]) if len(modes) == 1 else None
    if known is None:
        raise ModelError(f"{file} asks for {modes or wanted}; it must ask for one pooling: lasttoken or mean")
    return known


def _of_gguf(path: Path) -> Pooling:
    metadata = GgufFile.open(path).metadata
    key = f"{metadata.text('general.architecture')}.pooling_type"
    told = metadata.value(key)
    if told in (None, 0):
        return "last"
    if told not in _NUMBERS:
        raise metadata.wrong(key, "0, 1 (mean), 3 (last) or absent")
    return _NUMBERS[told]
