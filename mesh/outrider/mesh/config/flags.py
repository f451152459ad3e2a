"""Settings on the command line: every key is a flag."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from outrider.mesh.config.fields import Field, fields, nearest
from outrider.mesh.config.settings import Settings
from outrider.mesh.config.tables import is_table, split_path
from outrider.mesh.errors import ConfigError


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def parse_flags(
    program: str, settings_type: type[Settings], arguments: Sequence[str]
) -> tuple[Path | None, dict[str, str]]:
    """The ``--config`` file (or `OUTRIDER_CONFIG`'s) and the values given as flags, by dotted key.

    ``--help`` prints every key and ends the process. `ConfigError` for a flag that is no key.
    """
    known_fields = fields(settings_type)
    with_dashes = [_with_dashes(text, known_fields) for text in arguments]
    parser = _parser(program, known_fields)
    for flag, path in _table_flags(with_dashes, known_fields).items():
        parser.add_argument(flag, dest=path)
    parsed, rest = parser.parse_known_args(with_dashes)
    if rest:
        flag, flags = rest[0].partition("=")[0], [field.flag for field in known_fields.values()]
        raise ConfigError(f"{rest[0]} is no flag of {program}{nearest(flag, flags)}")
    values = vars(parsed)
    file = values.pop("config") or os.environ.get("OUTRIDER_CONFIG")
    return (Path(file) if file else None), {key: value for key, value in values.items() if value is not None}


def _parser(program: str, known_fields: dict[str, Field]) -> _Parser:
    parser = _Parser(prog=program, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", metavar="FILE", help="TOML file with [mesh] and one table a service")
    for path, field in known_fields.items():
        parser.add_argument(field.flag, dest=path, metavar=_metavar(field), help=_help(field))
    return parser


def _with_dashes(text: str, known_fields: dict[str, Field]) -> str:
    """A flag with dashes for underscores, except in a key inside a table."""
    name, separator, value = text.partition("=")
    if not name.startswith("--"):
        return text
    dashed = name.replace("_", "-")
    for field in known_fields.values():
        if is_table(field) and dashed.startswith(f"{field.flag}."):
            return text.replace(name, field.flag + name[len(field.flag) :], 1)
    return dashed + separator + value


def _table_flags(arguments: Sequence[str], known_fields: dict[str, Field]) -> dict[str, str]:
    """The flags among ``arguments`` for keys inside tables, each with its dotted key."""
    keys: dict[str, str] = {}
    for flag in (text.partition("=")[0] for text in arguments):
        for path, field in known_fields.items():
            inside = path + flag.removeprefix(field.flag)
            if flag.startswith(f"{field.flag}.") and inside not in known_fields and split_path(inside, known_fields):
                keys[flag] = inside
    return keys


def _metavar(field: Field) -> str:
    return "{" + ",".join(field.allowed) + "}" if field.allowed else "VALUE"


def _help(field: Field) -> str:
    default = "" if field.default in ("", None) else f" [{'********' if field.secret else field.default}]"
    return f"{field.description}{default}".replace("%", "%%")
