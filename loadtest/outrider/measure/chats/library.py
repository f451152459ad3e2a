"""Python's standard library as a source of code and texts."""

from __future__ import annotations

import ast
import pydoc_data.topics
import random
import sysconfig
import textwrap
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

PARTS = ("edit", "code", "rag")
"""Kinds of requests made from the library; each file is used by one kind."""
_UNFIT = {
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "site-packages",
    "dist-packages",
    "encodings",
    "turtledemo",
    "pydoc_data",
}
_EACH_FILE = 48
_LONG_LINE = 12
_PASSAGE = 200, 1500

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Piece:
    """A function or class of the library; ``source`` is dedented and has no decorators."""

    module: str
    node: Definition
    source: str

    @property
    def doc(self) -> str:
        """The docstring; empty without one."""
        return ast.get_docstring(self.node) or ""


@dataclass(frozen=True)
class Passage:
    """A text of the library's documentation, and its subject."""

    subject: str
    text: str


class NoveltyFilter:
    """Finds near copies of earlier texts: more than half of a new text's longer lines have to be new."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __call__(self, text: str) -> bool:
        """Whether ``text`` is new; remembers a new text."""
        lines = {line for raw in text.splitlines() if len(line := raw.strip()) >= _LONG_LINE}
        new = 2 * len(lines - self._seen) > len(lines)
        self._seen |= lines if new else set()
        return new


def pieces(kind: str, draw: random.Random) -> Iterator[Piece]:
    """Some functions and classes of each file of ``kind``; files come in random order."""
    paths = list(files(kind))
    draw.shuffle(paths)
    for path, name in paths:
        definitions = list(_definitions(path, name))
        yield from draw.sample(definitions, min(len(definitions), _EACH_FILE))


def passages(draw: random.Random) -> Iterator[Passage]:
    """Docstrings and paragraphs of the language reference, in random order."""
    texts = [Passage(f"{p.module}.{p.node.name}", p.doc) for p in pieces("rag", draw)]
    for topic, text in pydoc_data.topics.topics.items():
        lumps = textwrap.dedent(text).split("\n\n")
        joined = ["\n\n".join(lumps[at : at + 4]).strip() for at in range(0, len(lumps), 4)]
        texts += [Passage(f"Python's {topic}, part {number}", part) for number, part in enumerate(joined, 1)]
    least, most = _PASSAGE
    is_new, fit = NoveltyFilter(), [passage for passage in texts if least <= len(passage.text) <= most]
    draw.shuffle(fit)
    return (passage for passage in fit if is_new(passage.text))


def files(kind: str) -> Iterator[tuple[Path, str]]:
    """Files of ``kind`` with the names of their modules."""
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(chain(library.glob("*.py"), library.glob("*/*.py"), library.glob("*/*/*.py"))):
        parts = path.relative_to(library).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        if not _UNFIT & set(parts) and PARTS[zlib.crc32(name.encode()) % len(PARTS)] == kind:
            yield path, name


def _definitions(path: Path, module: str) -> Iterator[Piece]:
    try:
        text = path.read_text("utf-8")
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError):
        return
    lines = text.splitlines(keepends=True)
    for node in ast.walk(tree):
        if isinstance(node, Definition) and not node.name.startswith("__"):
            yield Piece(module, node, textwrap.dedent("".join(lines[node.lineno - 1 : node.end_lineno])))
