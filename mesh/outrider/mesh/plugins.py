"""Plug-ins: what packages register under Outrider's entry-point groups, the built-ins among them."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from outrider.mesh.errors import ConfigError
from outrider.mesh.telemetry import get_logger

_log = get_logger("plugins")


def load(group: str, name: str) -> Any:
    """The object registered as ``name`` in ``group``; `ConfigError` when there is none or it cannot load."""
    for point in entry_points(group=group, name=name):
        try:
            return point.load()
        except Exception as error:
            raise ConfigError(f"{_title(point)} cannot be loaded: {error}") from error
    names = ", ".join(sorted({point.name for point in entry_points(group=group)})) or "none"
    raise ConfigError(f"no {name!r} among {group}: there are {names}")


def available(group: str) -> dict[str, Any]:
    """Everything in ``group`` by name; one that cannot be imported is left out with a warning."""
    plugins: dict[str, Any] = {}
    for point in entry_points(group=group):
        try:
            plugins[point.name] = point.load()
        except Exception as error:
            _log.warning("a plug-in was skipped", plugin=_title(point), why=str(error))
    return plugins


def _title(point: EntryPoint) -> str:
    package = f" of {point.dist.name}" if point.dist else ""
    return f"{point.group} {point.name!r}{package}"
