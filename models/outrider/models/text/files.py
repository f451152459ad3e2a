"""Reads the text files of a Hugging Face model directory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from outrider.models.text.errors import TextError

SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
_NO_LIMIT = 1_000_000_000  # transformers writes a huge model_max_length for no limit


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in ``path``, empty for a missing file; `TextError` if the file holds no JSON object."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise TextError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise TextError(f"{path} holds a JSON {type(value).__name__} where an object belongs")
    return value


def special_names(config: Mapping[str, Any]) -> dict[str, str]:
    """Contents of the named special tokens (`bos_token`, ...) in ``tokenizer_config.json``."""
    contents = {name: _content(config.get(name)) for name in SPECIAL_NAMES}
    return {name: content for name, content in contents.items() if content is not None}


def eos_ids(sources: Iterable[Mapping[str, Any]]) -> tuple[int, ...]:
    """End-of-text ids of the first source with ``eos_token_id`` (an id or a list of ids)."""
    for source in sources:
        value = source.get("eos_token_id")
        if value is not None:
            return tuple(value) if isinstance(value, list) else (int(value),)
    return ()


def context_length(config: Mapping[str, Any], tokenizer_config: Mapping[str, Any]) -> int | None:
    """Most tokens of prompt and answer, from ``config.json``, else ``tokenizer_config.json``; None without either."""
    length = config.get("max_position_embeddings") or tokenizer_config.get("model_max_length")
    return int(length) if length and length < _NO_LIMIT else None


def chat_template(directory: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    """Source of the chat template: ``chat_template.jinja``, ``.json``, or in ``tokenizer_config.json``."""
    jinja = directory / "chat_template.jinja"
    if jinja.is_file():
        return jinja.read_text(encoding="utf-8")
    template = read_json(directory / "chat_template.json").get("chat_template")
    return _default_template(template or tokenizer_config.get("chat_template"))


def _default_template(value: Any) -> str | None:
    if isinstance(value, list):
        return next((entry["template"] for entry in value if entry.get("name") == "default"), None)
    return value if isinstance(value, str) else None


def _content(value: Any) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None
