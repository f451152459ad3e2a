"""Loads the local drafters and the rule of acceptance that the settings name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from outrider.mesh import plugins
from outrider.mesh.errors import ConfigError
from outrider.mesh.telemetry import get_logger
from outrider.models import store
from outrider.models.llama import LlamaModel, ModelError
from outrider.models.speculation import Acceptance, AcceptanceError, Drafter, DrafterContext, DrafterError
from outrider.models.text import TextError
from outrider.verifier.settings import VerifierSettings

_GROUP = "outrider.drafters"
_RULES = "outrider.acceptance"
_AUTO = ["ngram", "suffix"]
_SHIPPED: dict[str, store.Shipped] = {"medusa": "medusa", "model": "draft"}

_log = get_logger("verifier")


def make_drafters(settings: VerifierSettings, vocabulary: str, model: LlamaModel) -> list[Drafter]:
    """The drafters of ``settings.drafters``, in its order.

    Args:
        settings: settings of the verifier.
        vocabulary: fingerprint of the target's vocabulary.
        model: the target.

    Raises:
        ConfigError: a drafter is unknown, cannot serve this target, or has options but is not in ``drafters``.
    """
    names = _names(settings)
    if unlisted := sorted(settings.options.keys() - set(names)):
        raise ConfigError(f"options has settings for {', '.join(unlisted)}, which drafters does not list")
    return [_make(name, settings, vocabulary, model) for name in names]


def _names(settings: VerifierSettings) -> list[str]:
    """The drafters of the settings, ``auto`` spelled out, without repetitions."""
    beside = settings.device == "cpu" and (settings.model == "pocket" or "model" in settings.options)
    auto = [*_AUTO, "model"] if beside else _AUTO
    return list(dict.fromkeys(name for entry in settings.drafters for name in (auto if entry == "auto" else [entry])))


def make_rule(settings: VerifierSettings) -> Acceptance:
    """The rule of acceptance; `ConfigError` if it is unknown or its options are wrong."""
    try:
        rule: Acceptance = plugins.load(_RULES, settings.acceptance)(settings.acceptance_options)
    except AcceptanceError as error:
        raise ConfigError(str(error)) from None
    return rule


def _make(name: str, settings: VerifierSettings, vocabulary: str, model: LlamaModel) -> Drafter:
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
        drafter: Drafter = plugins.load(_GROUP, name)(context)
    except (DrafterError, ModelError, TextError) as error:
        raise ConfigError(str(error)) from None
    return drafter


def _place(name: str, options: dict[str, Any], shipped: bool, integrity: store.Integrity) -> Path | None:
    """Where the drafter's model is: its option ``model``, which is removed from ``options``."""
    model = options.pop("model", store.POCKET if shipped else None)
    if model is None:
        return None
    if not isinstance(model, str):
        raise ConfigError(f"options.{name}.model must be text that names a model, not {model!r}")
    return store.obtain(model, integrity, _SHIPPED.get(name, "draft"), watch=store.logged(_log))
