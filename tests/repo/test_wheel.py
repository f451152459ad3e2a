from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGES = (
    "cli",
    "gateway",
    "kernels",
    "kvcache",
    "loadtest",
    "mesh",
    "models",
    "proposer",
    "tokenizer",
    "v1",
    "verifier",
    "wire",
)
POCKET = "outrider/models/pocket/weights"


@pytest.fixture(scope="module")
def contents(tmp_path_factory) -> dict[str, int]:
    """Bytes of each file in a wheel built from this tree."""
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    )
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.file_size for entry in archive.infolist()}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_wheel_holds_every_package(contents, package):
    assert any(name.startswith(f"outrider/{package}/") and name.endswith(".py") for name in contents)


def test_the_wheel_ships_the_playground(contents):
    assert contents["outrider/gateway/doors/playground/page.html"]


def test_the_wheel_leaves_the_namespace_open(contents):
    assert "outrider/__init__.py" not in contents


def test_the_wheel_holds_the_code_and_its_licence_and_nothing_else(contents):
    roots = {name.split("/")[0] for name in contents}
    (metadata,) = roots - {"outrider"}
    assert metadata.endswith(".dist-info")
    assert f"{metadata}/licenses/LICENSE" in contents
    assert not [name for name in contents if "/tests/" in name or "__pycache__" in name]


def test_the_wheel_ships_the_pocket_models_within_their_budget(contents):
    weights = {name: size for name, size in contents.items() if name.endswith(".safetensors")}
    assert {name.rpartition("/")[0] for name in weights} >= {f"{POCKET}/target", f"{POCKET}/draft"}
    assert sum(weights.values()) <= 24 * 2**20
