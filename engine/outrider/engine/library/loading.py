"""Settings of an engine from the arguments of users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from outrider.engine import store
from outrider.engine.errors import ModelError, SettingsError
from outrider.engine.settings import EngineSettings
from outrider.engine.speculation.trees.tree import MOST_NODES

BOUNDS: dict[str, tuple[float, float | None]] = {
    "tensor_parallel": (1, None),
    "threads": (0, None),
    "pages": (0, None),
    "memory_fraction": (0, 1),
    "memory_sharers": (1, None),
    "page_size": (1, 256),
    "pinned_share": (0, 0.9),
    "max_running": (0, None),
    "max_waiting": (1, None),
    "prefill_rows": (0, None),
    "max_rows": (0, None),
    "embedding_share": (0.01, 1),
    "max_guesses": (-1, None),
    "max_nodes": (1, MOST_NODES),
    "max_tenant_guesses": (0, None),
    "audit_share": (0, 1),
}
"""Least and largest values of settings that are numbers."""
_OPTIONS = ("acceptance_options", "options")
_DEFAULTS = {each.name: each.default for each in fields(EngineSettings)}


def engine_settings(
    model: str, draft: str | None, drafters: str | Sequence[str], more: Mapping[str, Any]
) -> EngineSettings:
    """The settings; the drafter that reads ``draft`` is one of the ``drafters``.

    Raises:
        TypeError: there is no such setting.
        SettingsError: a setting may not have this value.
    """
    if unknown := sorted(more.keys() - _DEFAULTS.keys()):
        there = ", ".join(name for name in _DEFAULTS if name != "model")
        raise TypeError(f"LLM has no setting {', '.join(unknown)}; there are: draft, {there}")
    for name, value in more.items():
        _check(name, value)
    names, options = [drafters] if isinstance(drafters, str) else list(drafters), dict(more.get("options", {}))
    if draft is not None:
        name = _drafter(draft)
        names, options = [*names, name], options | {name: {**options.get(name, {}), "model": draft}}
    return EngineSettings(**{**more, "model": str(model), "drafters": names, "options": options})


def _drafter(draft: str) -> str:
    try:
        return store.drafter_of(store.locate(draft, "draft"))
    except ModelError as error:
        raise SettingsError(f"draft: {error}") from None


def _check(name: str, value: Any) -> None:
    """Checks types and bounds; a model refuses words that it does not know when it is loaded."""
    if name in _OPTIONS:
        _require(isinstance(value, Mapping), name, "a dictionary", value)
        return
    kind = type(_DEFAULTS[name])
    fits = isinstance(value, kind) or (kind is float and isinstance(value, int))
    kinds = {bool: "True or False", int: "an integer", float: "a number", str: "a text"}
    _require(fits and (kind is bool or not isinstance(value, bool)), name, kinds[kind], value)
    if name in BOUNDS:
        least, most = BOUNDS[name]
        allowed = f"at least {least:g}" if most is None else f"from {least:g} to {most:g}"
        _require(value >= least and (most is None or value <= most), name, allowed, value)
    elif name == "priority_aging_s":
        _require(value > 0, name, "above 0", value)


def _require(holds: object, name: str, allowed: str, value: Any) -> None:
    if not holds:
        raise SettingsError(f"{name} must be {allowed}, not {value!r}")
