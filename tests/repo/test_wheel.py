from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from outrider.native.compiler import path_of
from outrider.native.levels import LEVELS

REPOSITORY = Path(__file__).parents[2]
PACKAGES = (
    "cli",
    "gateway",
    "kernels",
    "kvcache",
    "loadtest",
    "mesh",
    "models",
    "native",
    "proposer",
    "tokenizer",
    "v1",
    "verifier",
    "wire",
)
POCKET = "outrider/models/pocket/weights"


def _build(target: str, source: Path, out: Path, **variables: str) -> Path:
    """The wheel or source distribution that is built from a tree."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, env=os.environ | variables)
    (built,) = (path for path in out.iterdir() if path.is_file())
    return built


def _sizes(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.file_size for entry in archive.infolist()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from this tree."""
    return _build("wheel", REPOSITORY, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def contents(wheel: Path) -> dict[str, int]:
    """Bytes of each file in it."""
    return _sizes(wheel)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_wheel_holds_every_package(contents, package):
    assert any(name.startswith(f"outrider/{package}/") and name.endswith(".py") for name in contents)


def test_the_wheel_holds_a_library_for_each_level_and_is_for_its_platform(
    wheel: Path, contents: dict[str, int]
) -> None:
    names = {path_of(level).name for level in LEVELS}
    assert {name for name in contents if name.endswith(".so")} == {
        f"outrider/native/libraries/{name}" for name in names
    }
    assert "outrider/native/source/outrider_native.h" in contents
    assert wheel.name.endswith("-py3-none-linux_x86_64.whl")


def test_without_a_compiler_the_wheel_is_one_of_python_alone(tmp_path: Path) -> None:
    archive = _build("sdist", REPOSITORY, tmp_path / "sdist")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    built = _build("wheel", tmp_path / archive.name.removesuffix(".tar.gz"), tmp_path / "wheel", PATH="", CXX="")
    assert built.name.endswith("-py3-none-any.whl")
    contents = _sizes(built)
    assert not [name for name in contents if "/libraries/" in name]
    assert "outrider/native/library.py" in contents


def test_the_wheel_ships_the_playground(contents):
    assert contents["outrider/gateway/playground/page.html"]


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
