"""The Helm chart, rendered by the real helm."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

HELM = shutil.which("helm")
FOLDER = Path(__file__).parents[2] / "deploy" / "helm"
CHART = FOLDER / "outrider"
VALUES = sorted(path.stem for path in (FOLDER / "values").glob("*.yaml"))
RELEASE, NAMESPACE = "mesh", "llm"
WORKLOADS = ("Deployment", "Job")

Object = dict[str, Any]


def template(values: str, *sets: str) -> subprocess.CompletedProcess[str]:
    """`helm template` with one of the values files and ``key=value`` settings."""
    assert HELM
    flags = [flag for pair in sets for flag in ("--set", pair)]
    command = [HELM, "template", RELEASE, str(CHART), "--namespace", NAMESPACE, "-f", str(values_file(values)), *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def values_file(values: str) -> Path:
    """One of the values files."""
    return FOLDER / "values" / f"{values}.yaml"


@cache
def render(values: str, *sets: str) -> list[Object]:
    """The objects of the chart; fails with what helm says against the values."""
    done = template(values, *sets)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    """Those of the ``objects`` that are of one of the ``kinds``."""
    return [each for each in objects if each["kind"] in kinds]


def named(objects: list[Object], kind: str, name: str) -> Object:
    """The object of a kind with a name."""
    [found] = [each for each in of_kind(objects, kind) if each["metadata"]["name"] == name]
    return found


def labels(workload: Object) -> dict[str, str]:
    """The labels of a workload's pods."""
    return dict(workload["spec"]["template"]["metadata"]["labels"])


def pod(workload: Object) -> Object:
    """The specification of a workload's pods."""
    return dict(workload["spec"]["template"]["spec"])


def containers(workload: Object) -> list[Object]:
    """All containers of a workload's pods."""
    return [*pod(workload).get("initContainers", []), *pod(workload)["containers"]]


def variables(workload: Object) -> dict[str, str]:
    """The variables of the first container that have values."""
    return {each["name"]: each["value"] for each in pod(workload)["containers"][0]["env"] if "value" in each}


def component(workload: Object) -> str:
    """The kind of service, `credentials`, or `models`."""
    return labels(workload)["app.kubernetes.io/component"]
