"""ScaledObjects of KEDA (https://keda.sh/docs/latest/reference/scaledobject-spec), as far as the chart uses them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml


class Trigger(msgspec.Struct, frozen=True):
    """A query for the sum over all pods, and one pod's part of it; a sum over ``activation`` keeps a pod."""

    name: str
    query: str
    target: float
    activation: float = 0.0


class Pace(msgspec.Struct, frozen=True):
    """How fast the number of pods may change: ``pods`` in ``period_s`` seconds, towards the safest of ``window_s``."""

    pods: int
    period_s: float
    window_s: float


class Scaler(msgspec.Struct, frozen=True):
    """A ScaledObject: what is scaled, between which numbers of pods, by what and how fast."""

    name: str
    least: int
    most: int
    cooldown_s: float
    up: Pace
    down: Pace
    triggers: tuple[Trigger, ...]


def read(path: Path) -> list[Scaler]:
    """The scalers in a file of manifests, such as the output of `helm template`.

    Raises `ValueError` if there is none, or one has a trigger of another type than a sum that Prometheus knows.
    """
    objects = [each for each in yaml.safe_load_all(path.read_text()) if each]
    scalers = [_scaler(each) for each in objects if each["kind"] == "ScaledObject"]
    if not scalers:
        raise ValueError(f"{path} holds no ScaledObject: the blocks of the values need `scaling`")
    return scalers


def _scaler(thing: Mapping[str, Any]) -> Scaler:
    spec, name = thing["spec"], thing["metadata"]["name"]
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    return Scaler(
        name,
        spec["minReplicaCount"],
        spec["maxReplicaCount"],
        spec["cooldownPeriod"],
        _pace(name, behavior["scaleUp"]),
        _pace(name, behavior["scaleDown"]),
        tuple(_trigger(name, each) for each in spec["triggers"]),
    )


def _pace(name: str, rules: Mapping[str, Any]) -> Pace:
    match rules["policies"]:
        case [{"type": "Pods", "value": pods, "periodSeconds": period_s}]:
            return Pace(pods, period_s, rules["stabilizationWindowSeconds"])
        case policies:
            raise ValueError(f"{name} has the policies {policies}, and one of the type Pods is expected")


def _trigger(name: str, thing: Mapping[str, Any]) -> Trigger:
    if (thing["type"], thing.get("metricType")) != ("prometheus", "AverageValue"):
        raise ValueError(f"{name}: the trigger {thing.get('name')!r} is no AverageValue of Prometheus")
    about = thing["metadata"]
    return Trigger(thing["name"], about["query"], float(about["threshold"]), float(about.get("activationThreshold", 0)))
