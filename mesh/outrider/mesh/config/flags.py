"""Settings on the command line: every key is a flag."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from outrider.mesh.config.fields import Field, fields, nearest
from outrider.mesh.config.settings import Settings
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
    known = fields(settings_type)
    parsed, rest = _parser(program, known).parse_known_args([_with_dashes(text) for text in arguments])
    if rest:
        flags = [field.flag for field in known.values()]
        raise ConfigError(f"{rest[0]} is no flag of {program}{nearest(rest[0].partition('=')[0], flags)}")
    values = vars(parsed)
    file = values.pop("config") or os.environ.get("OUTRIDER_CONFIG")
    return (Path(file) if file else None), {key: value for key, value in values.items() if value is not None}


def _parser(program: str, known: dict[str, Field]) -> _Parser:
    parser = _Parser(prog=program, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", metavar="FILE", help="TOML file with [mesh] and one table a service")
    for path, field in known.items():
        parser.add_argument(field.flag, dest=path, metavar=_metavar(field), help=_help(field))
    return parser


def _with_dashes(text: str) -> str:
    name, separator, value = text.partition("=")
    return name.replace("_", "-") + separator + value if name.startswith("--") else text


def _metavar(field: Field) -> str:
    return "{" + ",".join(field.allowed) + "}" if field.allowed else "VALUE"


def _help(field: Field) -> str:
    default = "" if field.default in ("", None) else f" [{'********' if field.secret else field.default}]"
    return f"{field.description}{default}".replace("%", "%%")
