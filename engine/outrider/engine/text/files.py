"""Reads the text files of a Hugging Face model directory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from outrider.engine.text.errors import TextError

SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
_ADDITIONAL = "additional_chat_templates"
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


def tokenizer_config(directory: Path) -> dict[str, Any]:
    """``tokenizer_config.json``, and over an older one, without added tokens, ``special_tokens_map.json``."""
    config = read_json(directory / "tokenizer_config.json")
    if "added_tokens_decoder" in config:
        return config
    return config | read_json(directory / "special_tokens_map.json")


def special_names(config: Mapping[str, Any]) -> dict[str, str]:
    """Contents of the named special tokens (`bos_token`, ...) in ``tokenizer_config.json``."""
    contents = {name: _content(config.get(name)) for name in SPECIAL_NAMES}
    return {name: content for name, content in contents.items() if content is not None}


def eos_ids(directory: Path, config: Mapping[str, Any]) -> list[int]:
    """The ids that ``generation_config.json`` and ``config.json`` say end a text; `TextError` if they are no ids."""
    generation = directory / "generation_config.json"
    return [
        *_ids(read_json(generation).get("eos_token_id"), generation),
        *_ids(config.get("eos_token_id"), directory / "config.json"),
    ]


def _ids(value: Any, path: Path) -> list[int]:
    listed = [] if value is None else value if isinstance(value, list) else [value]
    if any(not isinstance(each, int) or isinstance(each, bool) or each < 0 for each in listed):
        raise TextError(f"{path}: eos_token_id is {json.dumps(value)}; it must be a token id or a list of token ids")
    return listed


def default_sampling(directory: Path) -> dict[str, int | float]:
    """The sampling that ``generation_config.json`` says the model is to be used with, by name.

    A value out of bounds is left out, as is one that changes nothing. A GGUF file says nothing.
    """
    found = read_json(directory / "generation_config.json") if directory.is_dir() else {}
    values = {
        name: found[name] for name, fits in _SAMPLING.items() if _is_number(found.get(name)) and fits(found[name])
    }
    return values | ({"top_k": int(values["top_k"])} if "top_k" in values else {})


_SAMPLING: dict[str, Callable[[float], bool]] = {
    "temperature": lambda value: 0 <= value <= 100 and value != 1,
    "top_p": lambda value: 0 < value < 1,
    "top_k": lambda value: value > 0 and value == int(value),
    "min_p": lambda value: 0 < value <= 1,
    "repetition_penalty": lambda value: 0 < value <= 100 and value != 1,
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def context_length(config: Mapping[str, Any], tokenizer_config: Mapping[str, Any]) -> int | None:
    """Most tokens of prompt and answer, from ``config.json``, else ``tokenizer_config.json``; None without either."""
    length = config.get("max_position_embeddings") or tokenizer_config.get("model_max_length")
    return int(length) if length and length < _NO_LIMIT else None


class Templates(NamedTuple):
    """Sources of chat templates: for chats without tools, and for those with tools; None without one."""

    default: str | None = None
    tool_use: str | None = None

    @classmethod
    def of(cls, named: Mapping[str, str]) -> Templates:
        """The templates among ``named`` ones; one of them stands for both where the other is missing."""
        default, tool_use = named.get("default"), named.get("tool_use")
        return cls(tool_use if default is None else default, default if tool_use is None else tool_use)


def chat_templates(directory: Path, tokenizer_config: Mapping[str, Any]) -> Templates:
    """Chat templates of a directory.

    These are ``chat_template.jinja`` and files in ``additional_chat_templates``, else ``chat_template.json``, else what
    is in ``tokenizer_config.json``: a template or a list of named ones. `TextError` for anything else there.
    """
    files = {path.stem: path for path in sorted((directory / _ADDITIONAL).glob("*.jinja"))}
    if (jinja := directory / "chat_template.jinja").is_file():
        files["default"] = jinja
    named = {name: _source(path) for name, path in files.items()}
    if "default" in named:
        return Templates.of(named)
    value = read_json(directory / "chat_template.json").get("chat_template") or tokenizer_config.get("chat_template")
    return Templates.of({**_named(value), **named})


def _source(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TextError(f"{path} cannot be read as a chat template: {error}") from None


def _named(value: Any) -> dict[str, str]:
    if isinstance(value, list) and all(isinstance(entry, dict) for entry in value):
        value = {str(entry.get("name")): entry.get("template") for entry in value}
    named = value if isinstance(value, dict) else {} if value is None else {"default": value}
    if not all(isinstance(source, str) for source in named.values()):
        raise TextError('chat_template must be a string, or a list of objects like {"name": ..., "template": ...}')
    return named


def _content(value: Any) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None
