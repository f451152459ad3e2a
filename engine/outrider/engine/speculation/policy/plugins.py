"""Loads the local drafters and the rule of acceptance that the settings name."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from outrider.engine import store
from outrider.engine.errors import SettingsError
from outrider.engine.logs import get_logger
from outrider.engine.models.llama import LlamaModel, ModelError
from outrider.engine.settings import EngineSettings
from outrider.engine.speculation import Acceptance, AcceptanceError, Drafter, DrafterContext, DrafterError
from outrider.engine.text import TextError

_GROUP = "outrider.drafters"
_RULES = "outrider.acceptance"
_AUTO = ["ngram", "suffix"]
_SHIPPED: dict[str, store.Shipped] = {"medusa": "medusa", "model": "draft"}

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
    names = _names(settings)
    if unlisted := sorted(settings.options.keys() - set(names)):
        raise SettingsError(f"options has settings for {', '.join(unlisted)}, which drafters does not list")
    return [_make(name, settings, vocabulary, model) for name in names]


def _names(settings: EngineSettings) -> list[str]:
    """The drafters of the settings, ``auto`` spelled out, without repetitions."""
    beside = settings.device == "cpu" and (settings.model == "pocket" or "model" in settings.options)
    auto = [*_AUTO, "model"] if beside else _AUTO
    return list(dict.fromkeys(name for entry in settings.drafters for name in (auto if entry == "auto" else [entry])))


def make_rule(settings: EngineSettings) -> Acceptance:
    """The rule of acceptance; `SettingsError` if it is unknown or its options are wrong."""
    try:
        rule: Acceptance = _load(_RULES, settings.acceptance)(settings.acceptance_options)
    except AcceptanceError as error:
        raise SettingsError(str(error)) from None
    return rule


def _make(name: str, settings: EngineSettings, vocabulary: str, model: LlamaModel) -> Drafter:
    options = dict(settings.options.get(name, {}))
    shipped = settings.model == "pocket" and name in _SHIPPED
    try:
        context = DrafterContext(
            vocabulary,
            model.config.vocab_size,
            model.config.context_length,
            _place(name, options, shipped, settings.integrity),
            settings.device,
            settings.dtype,
            options,
            model,
        )
        drafter: Drafter = _load(_GROUP, name)(context)
    except (DrafterError, ModelError, TextError) as error:
        raise SettingsError(str(error)) from None
    return drafter


def _load(group: str, name: str) -> Any:
    """The plug-in ``name`` of an entry-point group; `SettingsError` if it is not there or cannot be imported."""
    for point in entry_points(group=group, name=name):
        try:
            return point.load()
        except Exception as error:
            raise SettingsError(f"{group} {name!r} cannot be loaded: {error}") from error
    names = ", ".join(sorted({point.name for point in entry_points(group=group)})) or "none"
    raise SettingsError(f"no {name!r} among {group}: there are {names}")


def _place(name: str, options: dict[str, Any], shipped: bool, integrity: store.Integrity) -> Path | None:
    """Where the drafter's model is: its option ``model``, which is removed from ``options``."""
    model = options.pop("model", store.POCKET if shipped else None)
    if model is None:
        return None
    if not isinstance(model, str):
        raise SettingsError(f"options.{name}.model must be text that names a model, not {model!r}")
    return store.obtain(model, integrity, _SHIPPED.get(name, "draft"), watch=store.logged(_log))
