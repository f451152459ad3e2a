"""Keys inside a table whose keys are open: ``options.model.children`` of the setting ``options``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_origin

import msgspec
from outrider.mesh.config.fields import Field, inner
from outrider.mesh.errors import ConfigError


def is_table(field: Field) -> bool:
    """Whether the setting is a table of open keys."""
    return (get_origin(inner(field.type)) or inner(field.type)) is dict


def split_path(path: str, known_fields: Mapping[str, Field]) -> tuple[Field, list[str]] | None:
    """The setting that ``path`` names and the keys inside its table, none for the setting itself.

    None where ``path`` names no setting.
    """
    if path in known_fields:
        return known_fields[path], []
    for name, field in known_fields.items():
        keys = path.removeprefix(f"{name}.").split(".")
        if path.startswith(f"{name}.") and is_table(field) and all(keys):
            return field, keys
    return None


def nested_field(field: Field, keys: Sequence[str], source: str) -> Field:
    """The setting below ``keys`` in the table ``field``.

    Raises:
        ConfigError: the table holds no tables; the message names ``source``.
    """
    path, hint = field.path, field.type
    for key in keys:
        bare = inner(hint)
        if bare is not Any and get_origin(bare) is not dict:
            key_path = ".".join([field.path, *keys])
            raise ConfigError(f"{key_path} ({source}) is no setting: {path} is no table")
        path, hint = f"{path}.{key}", Any if bare is Any else get_args(bare)[1]
    return msgspec.structs.replace(field, path=path, type=hint, default=None, allowed=())


def with_value(table: Any, keys: Sequence[str], value: Any) -> dict[str, Any]:
    """A copy of ``table`` with ``value`` below ``keys``; tables on the way are made where they are missing."""
    first, *rest = keys
    old = table if isinstance(table, dict) else {}
    return {**old, first: with_value(old.get(first), rest, value) if rest else value}
