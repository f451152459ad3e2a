"""Brings the models that settings name, once, before services start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from outrider.cli.processes.downloads import shown
from outrider.cli.processes.keeper import StartError
from outrider.cli.processes.placement import SettingsByKind
from outrider.cli.settings import Flags
from outrider.engine.store import POCKET, ModelError, is_gguf, is_path, pin, served_name
from outrider.mesh.config import EffectiveSetting
from outrider.mesh.errors import ConfigError


def absolute(model: str | Path | None) -> str | None:
    """A path as an absolute one, for processes of other directories; anything else as it is."""
    named = None if model is None else str(model)
    return str(Path(named).absolute()) if named and named != POCKET and is_path(named) else named


def pin_models(settings: SettingsByKind, flags: Flags) -> bool:
    """Brings the models of the Hub that settings name, and puts their commits into ``flags``; whether there are any.

    Services then find all files in the cache, and ask no network.

    Raises:
        StartError: a model cannot be brought.
    """
    named = {(kind, key): value for kind, key, value in _models(settings) if value != POCKET and not is_path(value)}
    with shown() as watch:
        pinned = cache(lambda model: pin(model, watch))
        for (kind, key), model in named.items():
            try:
                flags[kind][key] = json.dumps(pinned(model)) if "." in key else pinned(model)
            except ModelError as error:
                raise StartError(f"{kind}.{key}: {error}") from None
    return bool(named)


def require_model(kind: str, settings: Mapping[str, EffectiveSetting]) -> None:
    """`StartError` if a service's model is a path where no model is, or that lacks the file the service reads first.

    A drafter's model has to be there; its drafter checks the files.
    """
    for key, named in _drafters_models(settings):
        if named != POCKET and is_path(named) and not Path(named).exists():
            raise StartError(f"{kind}.{key}: there is no model in {named}")
    model = settings.get("model")
    if model is None or model.value == POCKET or not is_path(model.value):
        return
    path = Path(model.value)
    if not (path / "config.json").is_file() and not (path.is_file() and is_gguf(path)):
        raise StartError(f"{kind}.model: there is no model in {model.value} (no config.json, and no GGUF file)")
    if path.is_file():
        return
    if kind == "tokenizer":
        if not (path / "tokenizer.json").is_file():
            raise StartError(f"{kind}.model: {model.value} lacks tokenizer.json")
    elif not any(path.glob("*.safetensors")):
        raise StartError(f"{kind}.model: {model.value} lacks weights (*.safetensors)")


def one_name(settings: SettingsByKind) -> str:
    """The name by which requests ask for the model.

    Raises:
        ConfigError: the tokenizer and the verifier serve models of two names; requests need both under one name.
    """
    by_tokenizer, by_verifier = (
        settings[kind]["served_name"].value or served_name(settings[kind]["model"].value)
        for kind in ("tokenizer", "verifier")
    )
    if by_tokenizer != by_verifier:
        raise ConfigError(
            f"the model is served as {by_tokenizer!r} by the tokenizer and {by_verifier!r} by the verifier, and "
            "requests need one name: set tokenizer.served_name and verifier.served_name to the same, or leave both out "
            "and add a name by --alias NAME"
        )
    return str(by_tokenizer)


def _models(settings: SettingsByKind) -> list[tuple[str, str, str]]:
    """Service, key and value of every setting that names a model."""
    keys = (("tokenizer", "model"), ("verifier", "model"), ("proposer", "model"), ("proposer", "target"))
    found = [(kind, key, settings[kind][key].value) for kind, key in keys]
    found += [("verifier", key, model) for key, model in _drafters_models(settings["verifier"])]
    return [(kind, key, value) for kind, key, value in found if value]


def _drafters_models(settings: Mapping[str, EffectiveSetting]) -> list[tuple[str, str]]:
    """Key and value of every option of a drafter that names a model."""
    drafters = settings["options"].value if "options" in settings else {}
    return [
        (f"options.{drafter}.model", model)
        for drafter, options in drafters.items()
        if isinstance(options, Mapping) and isinstance(model := options.get("model"), str)
    ]
