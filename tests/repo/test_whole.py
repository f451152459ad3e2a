"""`make test-all` runs every test; `make test` all but those that `tests/whole.py` lists."""

from __future__ import annotations

import ast
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.whole import WHOLE, is_whole

REPOSITORY = Path(__file__).parents[2]
TESTS = REPOSITORY / "tests"
EVERY_CHANGE = (
    "engine/library",
    "gateway/api/http",
    "gateway/api/grpc",
    "gateway/api/nats",
    "repo",
)
"""Folders of which `make test` runs at least one test a file."""


def pytest_of(target: str) -> list[str]:
    """Arguments of the first pytest that a target of the Makefile runs without ARGS."""
    said = subprocess.run(["make", "-n", target, "ARGS="], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    commands = [shlex.split(line) for line in said.stdout.splitlines() if "bin/pytest" in line]
    return [word for word in commands[0] if "=" not in word][1:]


def functions(file: Path) -> set[str]:
    """Names of a file's tests."""
    tree = ast.walk(ast.parse(file.read_text()))
    return {node.name for node in tree if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_all_tests_are_those_that_pytest_finds_without_a_selection() -> None:
    assert pytest_of("test-all") == ["-n", "3", "--dist", "loadgroup"]
    options = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert options["testpaths"] == ["tests"]
    assert not {"-m", "-k", "--ignore", "--deselect", "norecursedirs"} & {*options["addopts"].split(), *options}


def test_what_a_change_needs_each_time_is_all_that_is_not_listed() -> None:
    assert pytest_of("test") == [*pytest_of("test-all"), "-m", "not whole"]


def test_ci_runs_all_tests() -> None:
    assert "make --no-print-directory test-all " in (REPOSITORY / ".ci/run").read_text()


def test_what_is_listed_is_there() -> None:
    for name in WHOLE:
        path, _, function = name.partition("::")
        assert (TESTS / path).exists(), name
        assert not function or function.partition("[")[0] in functions(TESTS / path), name


def test_nothing_is_listed_twice() -> None:
    assert len(set(WHOLE)) == len(WHOLE)
    assert not [name for name in WHOLE if any(name.startswith((f"{each}/", f"{each}::")) for each in WHOLE)]


def test_a_name_lists_what_is_below_it_alone() -> None:
    name = WHOLE[0]
    assert is_whole(f"{name}/test_more.py::test_it")
    assert is_whole(f"{name}::test_it[case]")
    assert is_whole(f"{name}[case]")
    assert not is_whole(f"{name}_more/test_it.py::test_it")


@pytest.mark.parametrize("folder", EVERY_CHANGE)
def test_a_change_is_tried_at_every_api_each_time(folder: str) -> None:
    files = [file.relative_to(TESTS).as_posix() for file in (TESTS / folder).glob("test_*.py")]
    assert [file for file in files if not is_whole(file)]
