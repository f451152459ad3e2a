"""The training text of the pocket models: the running interpreter's standard library.

The library and its test suite are under the PSF licence. A hash of the path chooses the held-out library files; a
held-out file that shares long lines with the training text is dropped.
"""

from __future__ import annotations

import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path

SKIPPED = frozenset({"site-packages", "__pycache__", "pydoc_data", "turtledemo", "ensurepip", "encodings"})
SMALLEST = 200
LARGEST_TEST = 120_000
LONG_LINE = 30
OVERLAP = 0.3


@dataclass(frozen=True)
class Document:
    """One source file: its path below the library and its text."""

    path: str
    text: str

    @property
    def digest(self) -> str:
        """SHA-256 of the text in UTF-8, hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def is_test(self) -> bool:
        """Whether the file belongs to a test suite."""
        return not {"test", "tests"}.isdisjoint(self.path.split("/"))


@dataclass(frozen=True)
class Corpus:
    """Files to train on, held-out files, and files dropped from both because they resemble training text."""

    train: list[Document]
    heldout: list[Document]
    dropped: list[Document]

    @property
    def library(self) -> list[Document]:
        """Training files that are not tests."""
        return [d for d in self.train if not d.is_test]

    @property
    def tests(self) -> list[Document]:
        """Training files that are tests; empty if the interpreter has no test suite."""
        return [d for d in self.train if d.is_test]


def standard_library() -> Path:
    """Folder of the running interpreter's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def read(root: Path) -> list[Document]:
    """Every `.py` file below `root` in path order, without tables, huge tests and files that are not UTF-8."""
    documents = []
    for file in sorted(root.rglob("*.py")):
        relative = file.relative_to(root)
        if not SKIPPED.isdisjoint(relative.parts):
            continue
        try:
            document = Document(relative.as_posix(), file.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            continue
        huge = document.is_test and file.stat().st_size > LARGEST_TEST
        if len(document.text) >= SMALLEST and not huge:
            documents.append(document)
    return documents


def _held_out(document: Document, percent: int) -> bool:
    return not document.is_test and int(hashlib.sha256(document.path.encode()).hexdigest(), 16) % 100 < percent


def _long_lines(document: Document) -> list[str]:
    return [s for line in document.text.splitlines() if len(s := line.strip()) >= LONG_LINE]


def overlap(document: Document, known: set[str]) -> float:
    """Share of `document`'s long lines that are in `known`."""
    lines = _long_lines(document)
    return sum(line in known for line in lines) / max(1, len(lines))


def gather(root: Path, percent: int = 4) -> Corpus:
    """Splits the library below `root`; holds out about `percent` % of the library files.

    Raises `FileNotFoundError` if `root` holds no source.
    """
    documents = read(root)
    if not documents:
        raise FileNotFoundError(f"no Python source below {root}: is the standard library installed as files?")
    train = [d for d in documents if not _held_out(d, percent)]
    training_lines = {line for d in train for line in _long_lines(d)}
    held_out = [d for d in documents if _held_out(d, percent)]
    distinct = [d for d in held_out if overlap(d, training_lines) <= OVERLAP]
    return Corpus(train, distinct, [d for d in held_out if d not in distinct])
