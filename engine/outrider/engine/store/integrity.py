"""Whether a model's files are as they were at the first load: their sizes, times and SHA-256."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from outrider.engine.errors import ModelError
from outrider.engine.models import pocket
from outrider.engine.store.digests import sha256
from outrider.engine.store.listing import POOLING, text_files
from outrider.engine.store.manifests import Entry, Section, locked, read, write
from outrider.native.share import cores

Integrity = Literal["off", "size", "full"]
_AT_ONCE = 8
_WEIGHTS = (".safetensors", ".safetensors.index.json")
_SHA256_DIGITS = 64


def check(place: Path, level: Integrity, *, text_only: bool = False) -> None:
    """Compares a model with its manifest; the first check writes the manifest. Shipped models have theirs.

    Args:
        place: directory or GGUF file of the model.
        level: ``size`` compares sizes and times, and the SHA-256 of files whose time is another; ``full`` compares
            the SHA-256 of all files; ``off`` compares nothing.
        text_only: leave the weights of a directory out.

    Raises:
        ModelError: a file is missing, new or changed, or the manifest is damaged.
    """
    if level == "off" or not place.exists():
        return
    if _is_shipped(place):
        return pocket.verify(place)
    with locked(place):
        before = read(place)
        after = {
            section: _section(place, files, before.get(section), level == "full")
            for section, files in _sections(place, text_only).items()
        }
        if (merged := {**before, **after}) != before:
            write(place, merged)


def verify(place: Path) -> bool:
    """Compares the SHA-256 of all files of a model with its manifest, or with the Hub's where the Hub tells them.

    Returns:
        Whether there was a manifest; else one is written.

    Raises:
        ModelError: a file is missing, new or changed, or the manifest is damaged.
    """
    known = _is_shipped(place) or bool(read(place))
    check(place, "full")
    return known


def renew(place: Path) -> None:
    """Writes the manifest of a model anew, from its files as they are."""
    with locked(place):
        sections = _sections(place, False).items()
        write(place, {section: _entries(files, _hashes(list(files.values()))) for section, files in sections})


def _is_shipped(place: Path) -> bool:
    return place.parent == pocket.directory("target").parent


def _sections(place: Path, text_only: bool) -> dict[str, dict[str, Path]]:
    """The files of a model by name, those of the text and those of the weights."""
    if place.is_file():
        return {"weights": {place.name: place}}
    below = (*place.iterdir(), *place.glob("additional_chat_templates/*"), *place.glob(POOLING))
    names = sorted(path.relative_to(place).as_posix() for path in below if path.is_file())
    text = {name: place / name for name in text_files(names)}
    weights = [name for name in names if name.endswith(_WEIGHTS)] or [name for name in names if name.endswith(".pt")]
    return {"text": text} if text_only else {"text": text, "weights": {name: place / name for name in weights}}


def _section(place: Path, files: Mapping[str, Path], known: Section | None, all_hashes: bool) -> Section:
    """The entries of files, noted now or compared with the known ones; hashes that the Hub tells are compared too."""
    if known is None:
        known, all_hashes = _recorded(files), all_hashes and any(map(_blob_digest, files.values()))
    return _compared(place, files, known, all_hashes)


def _recorded(files: Mapping[str, Path]) -> Section:
    """Entries of files; a blob of the Hub is named by the SHA-256 that it should have."""
    known = {path: digest for path in files.values() if (digest := _blob_digest(path))}
    return _entries(files, _hashes([path for path in files.values() if path not in known]) | known)


def _blob_digest(path: Path) -> str:
    """The SHA-256 in the name of the blob of huggingface_hub's cache that a file links to; empty if there is none."""
    link = Path(os.readlink(path)) if path.is_symlink() else path
    return link.name if link.parent.name == "blobs" and len(link.name) == _SHA256_DIGITS else ""


def _entries(files: Mapping[str, Path], hashes: Mapping[Path, str]) -> Section:
    return {name: Entry.of(path, hashes[path]) for name, path in files.items()}


def _hashes(paths: list[Path]) -> dict[Path, str]:
    with ThreadPoolExecutor(min(_AT_ONCE, cores())) as pool:
        return dict(zip(paths, pool.map(sha256, paths), strict=True))


def _compared(place: Path, files: Mapping[str, Path], entries: Section, all_hashes: bool) -> Section:
    """``entries`` with the times of ``files``; `ModelError` if a file is not as its entry says."""
    for name in sorted(entries.keys() | files.keys()):
        if name not in files:
            raise _changed(place, name, "is missing, which was there at the first load")
        if name not in entries:
            raise _changed(place, name, "was not there at the first load")
        if files[name].stat().st_size != entries[name].size:
            sizes = f"{files[name].stat().st_size} bytes, not {entries[name].size}"
            raise _changed(place, name, f"has {sizes} as at the first load")
    read_again = {
        name: path for name, path in files.items() if all_hashes or path.stat().st_mtime_ns != entries[name].mtime_ns
    }
    hashes = _hashes(list(read_again.values()))
    for name, path in read_again.items():
        if hashes[path] != entries[name].sha256:
            digests = f"{hashes[path][:16]}…, not {entries[name].sha256[:16]}…"
            raise _changed(place, name, f"has the SHA-256 {digests} as at the first load")
    return {**entries, **_entries(read_again, hashes)}


def _changed(place: Path, name: str, what: str) -> ModelError:
    path = place if place.is_file() else place / name
    return ModelError(f"{path} {what}; `outrider models verify --renew {place}` accepts the model as it is")
