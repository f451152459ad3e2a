from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from outrider.native.compiler import path_of
from outrider.native.levels import AARCH64, LEVELS

REPOSITORY = Path(__file__).parents[2]
PACKAGES = (
    "cli",
    "engine",
    "gateway",
    "kernels",
    "kvcache",
    "measure",
    "mesh",
    "native",
    "proposer",
    "tokenizer",
    "training",
    "v1",
    "verifier",
    "wire",
)
ROOTS = ("wire", "mesh", "native", "kernels", "engine", "services", "gateway", "cli", "loadtest", "benches", "training")
LEFT_OUT = ("benches/", "loadtest/", "training/pocket/")
POCKET = "outrider/engine/models/pocket/weights"


def _build(target: str, source: Path, out: Path, **variables: str) -> Path:
    """The wheel or source distribution that is built from a tree."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, env=os.environ | variables)
    (built,) = (path for path in out.iterdir() if path.is_file())
    return built


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution of this tree."""
    out = tmp_path_factory.mktemp("sources")
    archive = _build("sdist", REPOSITORY, out / "sdist")
    with tarfile.open(archive) as packed:
        packed.extractall(out, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return out / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def crossing(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A compiler of any computer: a library holds the arguments that made it."""
    path = tmp_path_factory.mktemp("compiler") / "c++"
    path.write_text('#!/bin/sh\nfor last; do :; done\necho "$*" > "$last"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="module")
def wheel(sources: Path, crossing: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this computer, as it is built from the source distribution."""
    out = tmp_path_factory.mktemp("wheel")
    copy = shutil.copytree(sources, out / "sources")
    return _build("wheel", copy, out / "built", CXX=crossing)


@pytest.fixture(scope="module")
def unpacked(wheel: Path) -> Path:
    """Directory with the files of the wheel."""
    out = wheel.parent
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(out / "unpacked")
    return out / "unpacked"


@pytest.fixture(scope="module")
def contents(unpacked) -> dict[str, int]:
    """Bytes of each file in the wheel."""
    files = (path for path in unpacked.rglob("*") if path.is_file())
    return {path.relative_to(unpacked).as_posix(): path.stat().st_size for path in files}


def module(path: Path) -> str:
    """Dotted name of a source file, by its path below a source root."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    """Dotted names that a source file imports anywhere; ``from a import b`` yields both ``a`` and ``a.b``."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_wheel_holds_every_package(contents, package):
    assert any(name.startswith(f"outrider/{package}/") and name.endswith(".py") for name in contents)


@pytest.mark.parametrize("name", LEFT_OUT)
def test_the_wheel_leaves_out_what_runs_from_a_source_checkout(contents, name):
    assert list(REPOSITORY.glob(f"*/outrider/{name}"))
    assert not [held for held in contents if held.startswith(f"outrider/{name}")]


def test_nothing_in_the_wheel_imports_what_it_leaves_out(unpacked):
    held = {module(path.relative_to(unpacked)): path for path in unpacked.glob("outrider/**/*.py")}
    roots = [REPOSITORY / root for root in ROOTS]
    missing = {module(path.relative_to(root)) for root in roots for path in root.rglob("*.py")} - held.keys()
    assert missing
    assert not {(name, wanted) for name, path in held.items() for wanted in imports(path) if wanted in missing}


def without(unpacked: Path, missing: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of the wheel where the package ``missing`` is not installed."""
    hide = f"import importlib.util as u; f = u.find_spec; u.find_spec = lambda n: None if n == {missing!r} else f(n)"
    return subprocess.run(
        [sys.executable, "-B", "-S", "-c", f"{hide}; from outrider.cli.main import main; main()", *command],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(unpacked), sysconfig.get_path("purelib")])},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_command_that_lacks_a_package_names_the_extra_that_has_it(unpacked, tmp_path):
    (tmp_path / "a.json").write_text("{}")
    ask = ("--rate", "1", "--prompt-tokens", "1", "--answer-tokens", "1")
    plan = without(unpacked, "simpy", "plan", str(tmp_path / "a.json"), *ask)
    assert (plan.returncode, plan.stderr) == (
        2,
        "outrider: `outrider plan` needs simpy: pip install 'outrider[plan]'\n",
    )
    steps = without(unpacked, "matplotlib", "trace-steps", "x")
    assert (steps.returncode, "pip install 'outrider[plot]'" in steps.stderr) == (2, True)


@pytest.mark.parametrize("command", ["bench", "load run", "load compare", "profile", "plan"])
def test_a_command_that_measures_runs_from_the_wheel(unpacked, command):
    helped = without(unpacked, "matplotlib", *command.split(), "--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    needed = {"bench": "measuring.bench", "load": "measuring.load"}.get(command.split()[0], "measuring.planning")
    code = f"import outrider.cli.commands.{needed}, outrider.measure.ramp.page, outrider.measure.planning.search"
    variables = {"PYTHONPATH": os.pathsep.join([str(unpacked), sysconfig.get_path("purelib")])}
    subprocess.run([sys.executable, "-B", "-S", "-c", code], env=os.environ | variables, check=True)


def test_the_wheel_holds_a_library_for_each_level_and_is_for_its_platform(
    wheel: Path, contents: dict[str, int]
) -> None:
    names = {path_of(level).name for level in LEVELS}
    assert {name for name in contents if name.endswith(".so")} == {
        f"outrider/native/libraries/{name}" for name in names
    }
    assert "outrider/native/source/outrider_native.h" in contents
    assert wheel.name.endswith("-py3-none-linux_x86_64.whl")


def test_without_a_compiler_the_wheel_is_one_of_python_alone(sources: Path, tmp_path: Path) -> None:
    built = _build("wheel", sources, tmp_path / "wheel", PATH="", CXX="")
    assert built.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(built) as packed_wheel:
        names = packed_wheel.namelist()
    assert not [name for name in names if "/libraries/" in name]
    assert "outrider/native/library.py" in names


@pytest.mark.parametrize(
    ("machine", "platform"), [("aarch64", "manylinux_2_28_aarch64"), ("arm64", "macosx_11_0_arm64")]
)
def test_a_wheel_for_other_computers_holds_their_levels_as_another_compiler_makes_them(
    sources: Path, crossing: str, machine: str, platform: str, tmp_path: Path
) -> None:
    built = _build("wheel", sources, tmp_path / "wheel", OUTRIDER_WHEEL=machine, CXX=crossing)
    assert built.name.endswith(f"-py3-none-{platform}.whl")
    with zipfile.ZipFile(built) as packed:
        libraries = {name: packed.read(name).decode() for name in packed.namelist() if name.endswith(".so")}
    assert libraries.keys() == {f"outrider/native/libraries/{path_of(level).name}" for level in AARCH64}
    for level in AARCH64:
        assert " ".join(level.flags) in libraries[f"outrider/native/libraries/{path_of(level).name}"]


def test_a_wheel_for_other_computers_fails_where_a_level_does_not_compile(sources: Path, tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        _build("wheel", sources, tmp_path / "none", OUTRIDER_WHEEL="x86_64", CXX="false")


def test_the_wheel_ships_the_playground(contents):
    room = "outrider/gateway/api/playground"
    for name in ("page.html", "page.css", "chat.js", "vendor/marked.js", "vendor/purify.js"):
        assert contents[f"{room}/{name}"]


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
