"""Finds, checks and shows the settings of all services without starting a service."""

from __future__ import annotations

import functools
import os
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from outrider.mesh import plugins
from outrider.mesh.config import EffectiveSetting, Settings, describe
from outrider.mesh.config.fields import nearest
from outrider.mesh.errors import ConfigError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

GROUP = "outrider.settings"
"""Group of entry points that name the type of each service's settings; its module must be light to import."""

WIDTH = 200
"""Columns of a table that is not printed in a terminal."""

Flags = dict[str, dict[str, str]]


@functools.cache
def services() -> dict[str, type[Settings]]:
    """Types of the settings of all installed services, by kind."""
    return plugins.available(GROUP)


def parse_sets(sets: Iterable[str]) -> Flags:
    """Flags by service out of ``service.key=value``; ``mesh.key=value`` goes to every service.

    Raises:
        ConfigError: a text has another form, or names no service.
    """
    types = services()
    flags: Flags = defaultdict(dict)
    for text in sets:
        path, separator, value = text.partition("=")
        section, dot, key = path.partition(".")
        if not separator or not dot:
            raise ConfigError(f"--set {text}: it is written SERVICE.KEY=VALUE")
        if section != "mesh" and section not in types:
            raise ConfigError(f"--set {text}: {section} is no service{nearest(section, ['mesh', *types])}")
        for kind in types if section == "mesh" else [section]:
            flags[kind][key] = value
    return flags


def effective(kind: str, file: Path | None, flags: Flags) -> dict[str, EffectiveSetting]:
    """All settings of ``kind`` by key; `ConfigError` for a wrong value."""
    settings = services().get(kind) or plugins.load(GROUP, kind)
    values = describe(settings, kind, file=file, env=os.environ, flags=flags.get(kind, {}))
    return {value.field.path: value for value in values}


def show(file: Path | None, service: str | None, sets: list[str]) -> int:
    """Prints the settings; returns the exit code."""
    try:
        flags = parse_sets(sets)
        tables = [_table(kind, effective(kind, file, flags).values()) for kind in _kinds(service)]
    except ConfigError as error:
        return _refuse(error)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    for table in tables:
        console.print(table)
    return 0


def check(file: Path | None, service: str | None, sets: list[str]) -> int:
    """Prints the error of each service, or that all settings are right; returns the exit code."""
    try:
        flags, kinds = parse_sets(sets), _kinds(service)
    except ConfigError as error:
        return _refuse(error)
    kinds_by_error: dict[str, str] = {}
    for kind in kinds:
        try:
            effective(kind, file, flags)
        except ConfigError as error:
            kinds_by_error.setdefault(str(error), kind)
    for sentence, kind in kinds_by_error.items():
        print(f"{kind}: {sentence}", file=sys.stderr)
    if not kinds_by_error:
        print(f"The settings of {', '.join(kinds)} are right.")
    return ConfigError.exit_code if kinds_by_error else 0


def _kinds(service: str | None) -> list[str]:
    kinds = sorted(services())
    if service is None:
        return kinds
    if service not in kinds:
        raise ConfigError(f"{service} is no service{nearest(service, kinds)}: there are {', '.join(kinds)}")
    return [service]


def _table(kind: str, settings: Iterable[EffectiveSetting]) -> Table:
    table = Table(title=kind, title_justify="left", box=None, pad_edge=False)
    for head in ("key", "value", "from", "meaning"):
        table.add_column(head, overflow="fold")
    for value in settings:
        table.add_row(*map(escape, (value.field.path, value.shown, value.source, value.field.description)))
    return table


def _refuse(error: ConfigError) -> int:
    print(f"outrider: {error}", file=sys.stderr)
    return error.exit_code
