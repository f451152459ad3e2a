"""Loads the local drafters and the rule of acceptance that the settings name."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import entry_points
from operator import attrgetter
from pathlib import Path
from typing import Any

from outrider.engine import store
from outrider.engine.errors import SettingsError
from outrider.engine.logs import get_logger
from outrider.engine.models.llama import LlamaModel, ModelError
from outrider.engine.settings import EngineSettings
from outrider.engine.speculation import Acceptance, AcceptanceError, Drafter, DrafterContext, DrafterError
from outrider.engine.speculation.drafters.drafter import make_drafter, traits_of
from outrider.engine.text import TextError

_GROUP = "outrider.drafters"
_RULES = "outrider.acceptance"

_log = get_logger("speculation")


def make_drafters(settings: EngineSettings, vocabulary: str, model: LlamaModel) -> list[Drafter]:
    """The drafters of ``settings.drafters``, in its order.

    Args:
        settings: settings of the engine.
        vocabulary: fingerprint of the target's vocabulary.
        model: the target.

    Raises:
        SettingsError: a drafter is unknown, cannot serve this target, or has options but is not in ``drafters``.
    """
    names = drafter_names(settings)
    if unlisted := sorted(settings.options.keys() - set(names)):
        raise SettingsError(f"options has settings for {', '.join(unlisted)}, which drafters does not list")
    return [_make(name, settings, vocabulary, model) for name in names]


def make_version(
    name: str, model: str | None, settings: EngineSettings, vocabulary: str, target: LlamaModel
) -> Drafter | None:
    """The drafter ``name`` over another ``model``; without one as the settings have it, or None if they have none.

    Other options are those of the settings. Other arguments, and errors, as for `make_drafters`; the settings refuse a
    drafter that they leave out: it is neither listed, nor is ``auto`` without ``-name``.
    """
    listed = name in drafter_names(settings)
    if model is None:
        return _make(name, settings, vocabulary, target) if listed else None
    if not listed and ("auto" not in settings.drafters or f"-{name}" in settings.drafters):
        raise SettingsError(f"drafters = {list(settings.drafters)} leaves {name} out")
    options = {**settings.options, name: {**settings.options.get(name, {}), "model": model}}
    return _make(name, replace(settings, options=options), vocabulary, target)


def drafter_names(settings: EngineSettings) -> list[str]:
    """The drafters of the settings, ``auto`` spelled out, without repetitions and those that are left out."""
    named: list[str] = []
    for entry in settings.drafters:
        named += _auto(settings) if entry == "auto" else [entry]
    return [name for name in dict.fromkeys(named) if name[0] != "-" and f"-{name}" not in named]


def _auto(settings: EngineSettings) -> list[str]:
    chosen = []
    for name, plugin in installed().items():
        traits = traits_of(plugin)
        has_model = settings.device == "cpu" and (settings.model == store.POCKET or name in settings.options)
        wanted = not traits.named or name in settings.options
        if traits.auto and wanted and (traits.shipped is None or has_model):
            chosen.append(name)
    return chosen


def installed() -> dict[str, Any]:
    """The plug-ins of drafters, by name in order; one that cannot be imported is left out with a warning."""
    plugins: dict[str, Any] = {}
    for point in sorted(entry_points(group=_GROUP), key=attrgetter("name")):
        try:
            plugins[point.name] = point.load()
        except Exception as error:
            _log.warning("a drafter cannot be imported", drafter=point.name, why=str(error))
    return plugins


def remote_names() -> list[str]:
    """Names of the drafters that a proposer may bring later."""
    traits = {name: traits_of(plugin) for name, plugin in installed().items()}
    return [name for name, each in traits.items() if not (each.target or each.predicted)]


def make_rule(settings: EngineSettings) -> Acceptance:
    """The rule of acceptance; `SettingsError` if it is unknown or its options are wrong."""
    try:
        rule: Acceptance = _load(_RULES, settings.acceptance)(settings.acceptance_options)
    except AcceptanceError as error:
        raise SettingsError(str(error)) from None
    return rule


def _make(name: str, settings: EngineSettings, vocabulary: str, model: LlamaModel) -> Drafter:
    options, plugin = dict(settings.options.get(name, {})), _load(_GROUP, name)
    shipped = traits_of(plugin).shipped
    try:
        context = DrafterContext(
            vocabulary,
            model.config.vocab_size,
            model.config.context_length,
            _place(name, options, shipped, settings),
            settings.device,
            settings.dtype,
            options,
            model,
            model.config,
        )
        return make_drafter(plugin, name, context)
    except (DrafterError, ModelError, TextError) as error:
        raise SettingsError(str(error)) from None


def _load(group: str, name: str) -> Any:
    """The plug-in ``name`` of an entry-point group; `SettingsError` if it is not there or cannot be imported."""
    for point in entry_points(group=group, name=name):
        try:
            return point.load()
        except Exception as error:
            raise SettingsError(f"{group} {name!r} cannot be loaded: {error}") from error
    names = ", ".join(sorted({point.name for point in entry_points(group=group)})) or "none"
    raise SettingsError(f"no {name!r} among {group}: there are {names}")


def _place(name: str, options: dict[str, Any], shipped: store.Shipped | None, settings: EngineSettings) -> Path | None:
    """Where the drafter's model is: its option ``model``, which is removed from ``options``."""
    model = options.pop("model", store.POCKET if shipped and settings.model == store.POCKET else None)
    if model is None:
        return None
    if not isinstance(model, str):
        raise SettingsError(f"options.{name}.model must be text that names a model, not {model!r}")
    return store.obtain(model, settings.integrity, shipped or "draft", watch=store.logged(_log))
