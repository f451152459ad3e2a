"""Kubernetes' own schemas, of the package kubernetes-validate; its own validator reads all of them for every object."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

import jsonschema_rs

_DEFINITIONS = "_definitions.json"


def mistakes(thing: dict[str, Any], version: str) -> list[str]:
    """What an object has against the schema of its kind; fields that the schema lacks are mistakes too."""
    group, _, number = thing["apiVersion"].rpartition("/")
    name = "-".join(part for part in (thing["kind"].lower(), group.partition(".")[0], number) if part)
    return [str(error.message) for error in _validator(f"{name}.json", version).iter_errors(thing)]


@cache
def _validator(name: str, version: str) -> Any:
    return jsonschema_rs.validator_for(_read(name, version), registry=_registry(version))


@cache
def _registry(version: str) -> jsonschema_rs.Registry:
    definitions = _read(_DEFINITIONS, version)
    return jsonschema_rs.Registry([(definitions["$id"], definitions)])


def _read(name: str, version: str) -> Any:
    schemas = resources.files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}.0-local-strict"
    return json.loads((schemas / name).read_text())
