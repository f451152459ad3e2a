"""The keys of a settings type, each with the check of its values."""

from __future__ import annotations

import contextlib
import difflib
import tomllib
import typing
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta
from outrider.mesh.errors import ConfigError


class Field(msgspec.Struct, frozen=True):
    """One key: ``path`` is dotted for a key of a nested table; ``type`` carries the `Meta` constraints."""

    path: str
    type: Any
    default: Any
    description: str
    allowed: tuple[str, ...]
    secret: bool

    @property
    def flag(self) -> str:
        """Name on the command line."""
        return "--" + self.path.replace("_", "-")

    @property
    def variable(self) -> str:
        """Last part of the name in the environment."""
        return self.path.replace(".", "__").upper()

    def convert(self, value: Any, source: str) -> Any:
        """``value`` as this field's type; text from the environment or a flag is parsed by the type.

        `ConfigError` names the key, ``source`` and the allowed values.
        """
        try:
            raw = _split(value, self.type) if isinstance(value, str) else value
            return msgspec.convert(raw, self.type, strict=not isinstance(value, str), dec_hook=_decode)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise ConfigError(self._error_text(value, source, error)) from None

    def _error_text(self, value: Any, source: str, error: Exception) -> str:
        shown = "(hidden)" if self.secret else repr(value)
        if self.allowed and isinstance(value, str):
            return f"{self.path} = {shown} ({source}): not one of {', '.join(self.allowed)}" + nearest(
                value, self.allowed
            )
        return f"{self.path} = {shown} ({source}): {_lower_first(str(error))}"


def fields(settings_type: type[msgspec.Struct], prefix: str = "") -> dict[str, Field]:
    """Keys of ``settings_type`` by dotted path, those of nested structs included."""
    hints = typing.get_type_hints(settings_type, include_extras=True)
    by_path: dict[str, Field] = {}
    for item in msgspec.structs.fields(settings_type):
        path, hint = prefix + item.encode_name, hints[item.name]
        bare, metas = unwrap(hint)
        if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
            by_path |= fields(bare, f"{path}.")
        else:
            by_path[path] = Field(path, hint, _default(item), _help(metas), _allowed(bare), _secret(metas))
    return by_path


def nearest(name: str, names: Iterable[str]) -> str:
    """`` (did you mean X?)`` for the nearest spelling among ``names``, or nothing."""
    matches = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {matches[0]}?)" if matches else ""


def unwrap(hint: Any) -> tuple[Any, list[Meta]]:
    """The type inside any `Annotated`, and the constraints around it."""
    metas: list[Meta] = []
    while get_origin(hint) is typing.Annotated:
        hint, *more = get_args(hint)
        metas += [meta for meta in more if isinstance(meta, Meta)]
    return hint, metas


def _default(item: msgspec.structs.FieldInfo) -> Any:
    if item.default_factory is not msgspec.NODEFAULT:
        return item.default_factory()
    return item.default


def _help(metas: list[Meta]) -> str:
    return next((meta.description for meta in metas if meta.description), "")


def _secret(metas: list[Meta]) -> bool:
    return any((meta.extra or {}).get("secret", False) for meta in metas)


def _allowed(bare: Any) -> tuple[str, ...]:
    if get_origin(bare) is Literal:
        return tuple(str(value) for value in get_args(bare))
    if isinstance(bare, type) and issubclass(bare, Enum):
        return tuple(str(member.value) for member in bare)
    return ()


def _split(text: str, hint: Any) -> Any:
    """Parses ``a,b`` for a list, ``k=v,k=v`` for a table, JSON for either, and TOML where any type is allowed."""
    bare = inner(hint)
    origin = get_origin(bare) or bare
    if bare is Any:
        return _parse_any(text)
    if origin not in (list, tuple, set, frozenset, dict):
        return text
    if text.lstrip().startswith(("[", "{")):
        return msgspec.json.decode(text)
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if origin is not dict:
        return parts
    return {key: _split(value, get_args(bare)[1]) for key, value in map(_pair, parts)}


def _parse_any(text: str) -> Any:
    """``text`` as a TOML value or a JSON table if it is one, else the text itself."""
    with contextlib.suppress(tomllib.TOMLDecodeError):
        table = tomllib.loads(f"value = {text}")
        if len(table) == 1 and isinstance(table["value"], (bool, int, float, str, list, dict)):
            return table["value"]
    return msgspec.json.decode(text) if text.lstrip().startswith("{") else text


def _pair(part: str) -> tuple[str, str]:
    key, separator, value = part.partition("=")
    if not separator:
        raise msgspec.ValidationError(f"Expected `key=value`, got `{part}`")
    return key.strip(), value.strip()


def inner(hint: Any) -> Any:
    """The type inside any `Annotated` and beside any None."""
    bare, _ = unwrap(hint)
    if get_origin(bare) in (Union, UnionType):
        kinds = [kind for kind in get_args(bare) if kind is not NoneType]
        return inner(kinds[0]) if len(kinds) == 1 else bare
    return bare


def _decode(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, str):
        return Path(value).expanduser()
    raise msgspec.ValidationError(f"Expected `{kind.__name__}`, got `{type(value).__name__}`")


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
