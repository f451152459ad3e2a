"""Tests stand in folders like those of the sources, and share helpers and fixtures alone."""

from __future__ import annotations

import ast
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
TESTS = REPOSITORY / "tests"
ROOTS = ("wire", "mesh", "native", "kernels", "engine", "services", "gateway", "cli", "loadtest", "benches", "training")
OF_NO_PACKAGE = {"chaos", "clients", "deploy", "gateway/mesh", "gpu_proof", "outside", "repo", "security"}
"""Folders of tests that belong to no folder of sources, with those below."""
MOST_TESTS = 15
MODULES = sorted(TESTS.rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Dotted names of what a file imports; ``from a import b`` counts as ``a.b``."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    whole = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    parts = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return whole | {f"{node.module}.{alias.name}" for node in parts for alias in node.names}


def is_of_a_test(name: str) -> bool:
    """Whether a dotted name is a module of tests or of fixtures, or stands in one."""
    package, *parts = name.split(".")
    paths = [TESTS.joinpath(*parts[:count]).with_suffix(".py") for count in range(1, len(parts) + 1)]
    return package == "tests" and any(
        path.exists() and (path.stem == "conftest" or path.stem.startswith("test_")) for path in paths
    )


def test_nothing_is_imported_from_tests_or_from_fixtures() -> None:
    assert not {(path, name) for path in MODULES for name in imports(path) if is_of_a_test(name)}


def test_a_module_of_tests_is_told_from_a_helper_with_such_a_name() -> None:
    assert is_of_a_test("tests.conftest.shared_nats")
    assert is_of_a_test("tests.repo.test_tests")
    assert not is_of_a_test("tests.broker.Broker")
    assert not is_of_a_test("pytest.test_tests")


def test_folders_of_tests_are_folders_of_sources() -> None:
    sources = {
        folder.relative_to(REPOSITORY / root / "outrider").as_posix()
        for root in ROOTS
        for folder in (REPOSITORY / root / "outrider").rglob("*")
        if folder.is_dir()
    }
    tested = {path.parent.relative_to(TESTS).as_posix() for path in MODULES if path.name.startswith("test_")}
    assert {name for name in tested if name.split("/")[0] not in OF_NO_PACKAGE and name not in OF_NO_PACKAGE} <= sources


def test_a_folder_holds_few_tests() -> None:
    for folder in {path.parent for path in MODULES}:
        assert len(list(folder.glob("test_*.py"))) <= MOST_TESTS, folder


def test_files_that_start_first_are_there() -> None:
    body = ast.parse((TESTS / "conftest.py").read_text()).body
    (long,) = [node.value for node in body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LONG"]
    names = ast.literal_eval(long)
    assert names
    assert not [name for name in names if not (TESTS / name).is_file()]
