"""Who may import whom, read from the source without importing it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
ROOTS = ("wire", "mesh", "native", "kernels", "engine", "services", "gateway", "cli", "loadtest", "benches", "training")
SERVICE_FLOOR = {"engine", "kernels", "native", "mesh", "wire", "v1"}
MAY_IMPORT: dict[str, set[str]] = {
    "wire": {"v1"},
    "v1": set(),
    "mesh": {"v1", "native.heap"},
    "native": set(),
    "kernels": {"native"},
    "engine": {"kernels", "native"},
    "tokenizer": SERVICE_FLOOR,
    "proposer": SERVICE_FLOOR,
    "kvcache": {"mesh", "wire", "v1"},
    "verifier": SERVICE_FLOOR,
    "gateway": {"mesh", "wire", "v1", "engine.pages.page_names", "engine.requests.grammars"},
    "measure": {"mesh", "wire", "v1", "native"},
    "cli": {"mesh", "wire", "v1", "measure", "native", "engine.store"},
    "loadtest": {"measure", "mesh", "wire", "v1", "native"},
    "training": {"engine", "kernels", "native"},
    "benches": {*SERVICE_FLOOR, "verifier", "training"},
}
"""Packages, or rooms of packages (`models.store`), that a package may import."""
WITHOUT_TORCH = {"wire", "v1", "mesh", "tokenizer", "kvcache", "gateway", "cli", "measure", "loadtest"}

ROOMS: dict[str, tuple[str, ...]] = {
    "engine": (
        "errors",
        "needs",
        "logs",
        "worker",
        "limited_work",
        "limited_process",
        "settings",
        "sampling",
        "pages.page_names",
        "pages.key_balance",
        "pages.kv_dtype",
        "pages.free_pages",
        "pages.page_table",
        "pages.free_memory",
        "models",
        "store",
        "text",
        "speculation.trees",
        "speculation.acceptance",
        "speculation.heads",
        "speculation.drafters",
        "speculation",
        "requests.parameters",
        "requests.grammars",
        "requests.output",
        "pages",
        "logits",
        "thoughts",
        "requests",
        "scheduling",
        "telemetry",
        "speculation.policy",
        "decode",
        "target",
        "library",
    ),
    "verifier": (
        "settings",
        "memory_lock",
        "tracing",
        "grammars",
        "requests",
        "pages",
        "metrics",
        "drafter_versions",
        "rpc",
        "service",
        "__main__",
    ),
    "gateway": (
        "errors",
        "metrics",
        "observer.settings",
        "observer.tenant_labels",
        "observer.refusals",
        "settings",
        "identity",
        "abuse",
        "admission",
        "schemas",
        "request.generation",
        "request.models",
        "request.encoder",
        "tool_calls",
        "filters",
        "routing",
        "stream",
        "ledger",
        "observer",
        "request",
        "api",
        "service",
        "__main__",
    ),
    "gateway.api": (
        "http",
        "schema",
        "openai",
        "embeddings",
        "responses",
        "anthropic",
        "own",
        "ollama",
        "llama",
        "playground",
        "admin",
        "openapi",
        "app",
        "grpc",
        "nats",
    ),
    "cli": (
        "settings",
        "headings",
        "log_lines",
        "bus",
        "stores",
        "certificates",
        "credentials",
        "kubernetes",
        "processes",
        "commands",
        "main",
    ),
    "measure": ("local_mesh", "load", "report", "chats", "bench", "ramp", "planning"),
    "loadtest": ("thresholds", "meshes", "load", "chats", "cases", "peers", "attack", "experiments", "__main__"),
    "benches": ("kernels", "models", "verifier"),
}
"""Rooms of a package and modules beside them, in order: each may import those before it.

A room inside a room (`speculation.trees`), or a module of one, may have a place of its own.
"""
MOST_MODULES = 15
_ENDING = re.compile(r"(ings?|ed|ers?|ors?|ions?|ies|y|es|s|e)$")


def _sources() -> dict[str, Path]:
    """Files of the distribution by dotted module name; a package goes by its own name."""
    found = {}
    for root in ROOTS:
        for path in sorted((REPOSITORY / root).rglob("*.py")):
            parts = path.relative_to(REPOSITORY / root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def _imports(module: str, path: Path) -> set[str]:
    """Dotted names that ``module`` imports anywhere but for type checkers, relative ones made absolute.

    ``from a import b`` counts as ``a.b``, since only the file system knows whether ``b`` is a module.
    """
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return {name for node in _runtime_nodes(ast.parse(path.read_text())) for name in _names(node, package)}


def _reachable(module: str, known: dict[str, Path]) -> set[str]:
    """Everything that importing ``module`` can import in its turn, first party and third."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            if path := known.get(name):
                waiting += _imports(name, path)
            elif name.rpartition(".")[0]:
                waiting.append(name.rpartition(".")[0])
    return seen


def _runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _runtime_nodes(node)


def _names(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
        origin = ".".join(part for part in (base, node.module) if part)
        yield from (f"{origin}.{alias.name}" for alias in node.names)


def _place(module: str, package: str) -> int:
    """The place of a module's room in the order; names of the package's ``__init__`` are below all rooms."""
    name, order = f"{module}.".removeprefix(f"outrider.{package}."), ROOMS[package]
    rooms = [room for room in order if name.startswith(f"{room}.")]
    return order.index(max(rooms, key=len)) if rooms else -1


def _stem(module: str) -> str:
    """The module's name without the endings of its words: `cached_pages` and `caching_page` have one stem."""
    package, _, name = module.rpartition(".")
    return f"{package}." + "_".join(_ENDING.sub("", word) for word in name.split("_"))


def _package(module: str) -> str:
    return module.split(".")[1]


def _is_in(name: str, allowed: set[str]) -> bool:
    """Whether a dotted name is in one of the packages or rooms."""
    return any(f"{name}.".startswith(f"outrider.{place}.") for place in allowed)


SOURCES = _sources()


def test_every_package_of_the_distribution_has_its_floor():
    assert {_package(module) for module in SOURCES} <= MAY_IMPORT.keys()


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_what_it_may_stand_on(package):
    allowed = MAY_IMPORT[package] | {package}
    trespasses = {
        f"{module} imports {name}"
        for module, path in SOURCES.items()
        if _package(module) == package
        for name in _imports(module, path)
        if name.startswith("outrider.") and not _is_in(name, allowed)
    }
    assert not trespasses


@pytest.mark.parametrize("package", ROOMS)
def test_imports_go_down_the_order_of_rooms(package):
    order, prefix = ROOMS[package], f"outrider.{package}."
    upward = {
        f"{module} imports {name}"
        for module, path in SOURCES.items()
        if module.startswith(prefix)
        for name in _imports(module, path)
        if name.startswith(prefix) and _place(name, package) > _place(module, package)
    }
    assert not upward
    inside = {module.removeprefix(prefix).split(".")[0] for module in SOURCES if module.startswith(prefix)}
    assert inside == {room.split(".")[0] for room in order}


def test_a_room_has_a_docstring_and_few_modules():
    for package, order in ROOMS.items():
        for room in order:
            inside = [path for module, path in SOURCES.items() if module.startswith(f"outrider.{package}.{room}.")]
            rooms = {path.parent for path in inside}
            for folder in rooms:
                modules = [path for path in inside if path.parent == folder and not path.stem.startswith("__")]
                assert len(modules) <= MOST_MODULES, folder
                assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text())), folder


def test_no_two_modules_of_a_folder_have_names_that_differ_by_an_ending():
    modules = defaultdict(list)
    for module in SOURCES:
        modules[_stem(module)].append(module)
    assert not [names for names in modules.values() if len(names) > 1]


def test_names_that_differ_by_an_ending_have_one_stem():
    assert _stem("outrider.pages.cached_pages") == _stem("outrider.pages.caching_page")
    assert _stem("outrider.pages.link") != _stem("outrider.rpc.link")


@pytest.mark.parametrize("package", sorted(WITHOUT_TORCH))
def test_torch_is_out_of_reach_of_a_package_that_installs_without_it(package):
    modules = [module for module in SOURCES if _package(module) == package]
    assert not [module for module in modules if "torch" in _reachable(module, SOURCES)]


def test_no_folder_shuts_the_namespace_with_an_init_file():
    assert not [root for root in ROOTS if (REPOSITORY / root / "outrider" / "__init__.py").exists()]


def test_a_relative_import_is_read_as_the_module_it_names(tmp_path):
    path = tmp_path / "service.py"
    path.write_text("from . import step\nfrom .tree import walk\nfrom ..mesh import bus\n")
    found = _imports("outrider.verifier.service", path)
    assert found == {"outrider.verifier.step", "outrider.verifier.tree.walk", "outrider.mesh.bus"}


def test_an_import_for_type_checkers_is_no_import(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n")
    assert "torch" not in _imports("outrider.gateway.a", path)


def test_a_room_that_a_package_may_import_is_not_the_package_around_it():
    assert _is_in("outrider.engine.store.pin", {"engine.store"})
    assert not _is_in("outrider.engine.storage", {"engine.store"})
    assert not _is_in("outrider.engine.models.llama", {"engine.store"})
