"""Where manifests of models are, and how they are written.

A manifest is beside the model, ``outrider-manifest.json`` in a directory and ``NAME.outrider-manifest.json`` for a
file. Where that cannot be written, and for models in huggingface_hub's cache, it is in Outrider's cache directory,
named by the model's path.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from outrider.engine.errors import ModelError

NAME = "outrider-manifest.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as it was at the first load.

    Attributes:
        size: in bytes.
        mtime_ns: time of its last change, in nanoseconds since 1970.
        sha256: of its content, in hexadecimal.
    """

    size: int
    mtime_ns: int
    sha256: str

    @classmethod
    def of(cls, path: Path, sha256: str) -> Self:
        """The entry of a file whose hash is known."""
        stat = path.stat()
        return cls(stat.st_size, stat.st_mtime_ns, sha256)

    @classmethod
    def read(cls, value: Any) -> Self:
        """The entry in a JSON object; `TypeError` or `ValueError` if it is none."""
        entry = cls(**value)
        if not isinstance(entry.size, int) or not isinstance(entry.mtime_ns, int) or not isinstance(entry.sha256, str):
            raise ValueError("a field has the wrong type")
        return entry


Section = dict[str, Entry]
Manifest = dict[str, Section]
"""Entries by file name, in the sections ``text`` and ``weights``; a section is absent until its files are loaded."""


def read(place: Path) -> Manifest:
    """The manifest of a model, empty if there is none; `ModelError` if it is damaged."""
    path = next((path for path in _paths(place) if path.is_file()), None)
    if path is None:
        return {}
    try:
        document = json.loads(path.read_bytes())
        if document["version"] != _VERSION:
            raise ValueError(f"its version is not {_VERSION}")
        sections = {name: document[name] for name in ("text", "weights") if name in document}
        return {
            name: {file: Entry.read(entry) for file, entry in section.items()} for name, section in sections.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise ModelError(
            f"{path}, the manifest of {place}, is damaged ({reason}); "
            f"`outrider models verify --renew {place}` writes it anew"
        ) from None


def write(place: Path, manifest: Manifest) -> None:
    """Writes the manifest of a model, beside it or in Outrider's cache directory; warns if neither can be written."""
    document = {name: {file: asdict(entry) for file, entry in section.items()} for name, section in manifest.items()}
    text = json.dumps({"version": _VERSION, **document}, indent=1)
    for path in _paths(place):
        with suppress(OSError):
            return _replace(path, text)
    logging.getLogger(__name__).warning("no place for the manifest of %s can be written: %s", place, _kept(place))


def forget(place: Path) -> None:
    """Removes the manifests of a model."""
    for path in _paths(place):
        path.unlink(missing_ok=True)


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """Lets one process at a time check a model, where Outrider's cache directory can be written."""
    path = _kept(place).with_suffix(".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("w")
    except OSError:
        yield
        return
    with lock:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _paths(place: Path) -> list[Path]:
    """Where the manifest may be, the preferred place first."""
    beside = place.with_name(f"{place.name}.{NAME}") if place.is_file() else place / NAME
    return [_kept(place)] if _is_in_hub_cache(place) else [beside, _kept(place)]


def _kept(place: Path) -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = os.path.abspath(place)
    return home / "outrider" / "manifests" / f"{place.name}-{hashlib.sha256(path.encode()).hexdigest()[:16]}.json"


def _is_in_hub_cache(place: Path) -> bool:
    parts = Path(os.path.abspath(place)).parts
    return any(a.startswith("models--") and b == "snapshots" for a, b in pairwise(parts))


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False) as file:
        try:
            file.write(text)
            file.close()
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except OSError:
            os.unlink(file.name)
            raise
