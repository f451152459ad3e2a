"""The locks of the images: they have what pyproject.toml asks for, at the versions of constraints.txt, with hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[2]
EXTRAS = {"gateway": ["gateway"], "tokenizer": ["tokenizer"], "kvcache": ["kvcache"], "engine": ["engine", "tokenizer"]}
TORCH = ("torch-cpu", "torch-cuda")
_PIN = re.compile(r"^(\S+?)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)


def lock(name: str) -> dict[str, str]:
    """Versions by package; every line of a lock is one of a package with its hashes, or a comment."""
    text = (REPOSITORY / "requirements" / f"{name}.txt").read_text()
    assert not re.sub(r"^#.*\n", "", _PIN.sub("", text), flags=re.MULTILINE)
    return {canonicalize_name(package): version for package, version, _ in _PIN.findall(text)}


def constraints() -> dict[str, str]:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pins = (line.split("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(package): version for package, version in pins}


def wanted(extras: list[str]) -> list[Requirement]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"], *(each for extra in extras for each in project["optional-dependencies"][extra])]
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("image", EXTRAS)
def test_an_image_gets_all_that_it_asks_for_at_the_tested_versions(image: str) -> None:
    locked, tested = lock(image) | (lock("torch-cpu") if image == "engine" else {}), constraints()
    for requirement in wanted(EXTRAS[image]):
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), requirement
    assert {
        package: version.removesuffix("+cpu") for package, version in locked.items() if package != "setuptools"
    } == {package: tested[package] for package in locked if package != "setuptools"}


def test_locks_agree_with_each_other() -> None:
    names = [*EXTRAS, *TORCH, "build", "wheels"]
    versions: dict[str, set[str]] = {}
    for name in names:
        for package, version in lock(name).items():
            versions.setdefault(package, set()).add(version.removesuffix("+cpu"))
    assert not {package: found for package, found in versions.items() if len(found) > 1}


def test_an_image_without_a_gpu_gets_nothing_of_cuda() -> None:
    assert not [package for package in lock("engine") if re.match(r"torch|triton|nvidia|cuda", package)]
    assert lock("torch-cpu") == {"torch": f"{constraints()['torch']}+cpu"}
    assert {"torch", "triton", "nvidia-cudnn-cu13"} <= lock("torch-cuda").keys()


def test_images_install_from_locks_only() -> None:
    text = (REPOSITORY / "Dockerfile").read_text()
    installs = re.findall(r"pip install (.*)", text)
    assert installs
    assert all(each.startswith(("--require-hashes ", "--no-index --no-deps /dist/")) for each in installs)
