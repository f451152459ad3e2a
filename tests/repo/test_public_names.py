"""Tests use public names, and patch none of Outrider's code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
ALLOWED = {
    "tests/conftest.py": "httpx has no public place for a TLS context that all clients share",
    "tests/clients/test_openai.py": "the attribute is of openai's client",
    "tests/kernels/race_sample/test_race_cpu.py": "the levels of the native library have no public names",
    "tests/engine/speculation/drafters/test_suffix.py": "which of two stores a drafter took has no public name",
    "tests/engine/models/test_native.py": "the levels of the native library have no public names",
    "tests/native/test_header.py": "where native code is built and found is no argument",
    "tests/native/test_levels.py": "where native code is built and found is no argument",
    "tests/native/test_presence.py": "where native code is built and found is no argument",
}
"""Files that may reach into private names or patch, with the reason."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def own_names(tree: ast.AST) -> set[str]:
    """Private names that a file defines itself, and those of named tuples."""
    nodes = list(ast.walk(tree))
    stored = {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    fields = {node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    return stored | defined | fields | {"_replace", "_asdict", "_fields", "_make"}


def private_uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines that use a private name of something else than the file's own."""
    own = own_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, alias.name) for alias in node.names if is_private(alias.name))


def patches(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines that put something else in place of a name of Outrider's."""
    ours = {
        alias.asname or alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom | ast.Import)
        for alias in node.names
        if (getattr(node, "module", None) or alias.name).startswith("outrider")
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            target = ast.unparse(node.args[0])
            if target.split(".")[0] in ours or target.strip("'").startswith("outrider"):
                yield node.lineno, f"patch of {target}"


def uses(path: Path) -> list[tuple[int, str]]:
    tree = ast.parse(path.read_text())
    return [*private_uses(tree), *patches(tree)]


def test_no_file_reaches_into_private_names_or_patches_outrider() -> None:
    paths = sorted((REPOSITORY / "tests").rglob("*.py"))
    places = {path.relative_to(REPOSITORY).as_posix(): uses(path) for path in paths}
    offenders = {name: found for name, found in places.items() if found}
    assert not {name: found for name, found in offenders.items() if name not in ALLOWED}
    assert not [name for name in ALLOWED if name not in offenders], "these files need no exception"


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("engine._runner.model", [(1, "_runner")]),
        ("from outrider.verifier import _Table", [(1, "_Table")]),
        ("class A:\n    def f(self):\n        self._own = 1\n        return self._own, self._others", [(4, "_others")]),
        ("plan._replace(a=1).__class__", []),
        ("from outrider.engine.models import native\npatch.setattr(native, 'choice', None)", [(2, "patch of native")]),
        ("patch.setattr('outrider.mesh.registry.SILENCE_S', 0)", [(1, "patch of 'outrider.mesh.registry.SILENCE_S'")]),
        ("import os\npatch.setattr(os, 'sched_getaffinity', None)", []),
    ],
)
def test_uses_of_private_names_and_patches_are_found(text: str, places: list[tuple[int, str]]) -> None:
    tree = ast.parse(text)
    assert [*private_uses(tree), *patches(tree)] == places
