"""The text the pocket models learn: the running interpreter's own standard library.

Both the library and its test suite are under the PSF licence. Some library files are held out, chosen by a
hash of their path so that the choice needs no list; one that shares long lines with the rest is dropped.
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
    """The files to learn, those held out, and those kept from both because they resemble what is learnt."""

    train: list[Document]
    heldout: list[Document]
    dropped: list[Document]

    @property
    def library(self) -> list[Document]:
        """The files to learn that are not tests."""
        return [d for d in self.train if not d.is_test]

    @property
    def tests(self) -> list[Document]:
        """The files to learn that are tests; empty where the interpreter came without its test suite."""
        return [d for d in self.train if d.is_test]


def standard_library() -> Path:
    """Folder of the running interpreter's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def read(root: Path) -> list[Document]:
    """Every `.py` file below `root` in path order, without tables, huge tests and what is not UTF-8."""
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
    """Split the library below `root`: about `percent` of a hundred library files are held out.

    Raises `FileNotFoundError` where `root` holds no source.
    """
    documents = read(root)
    if not documents:
        raise FileNotFoundError(f"no Python source below {root}: is the standard library installed as files?")
    train = [d for d in documents if not _held_out(d, percent)]
    known = {line for d in train for line in _long_lines(d)}
    chosen = [d for d in documents if _held_out(d, percent)]
    kept = [d for d in chosen if overlap(d, known) <= OVERLAP]
    return Corpus(train, kept, [d for d in chosen if d not in kept])
