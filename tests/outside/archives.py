"""Archives of published packages, which hold tests that others wrote: `make outside` downloads them."""

from __future__ import annotations

import os
import re
import tarfile
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

_PINS = Path(__file__).with_name("requirements.txt")


def members(package: str, pattern: str) -> dict[str, bytes]:
    """Contents of the files of a package's archive whose paths fit ``pattern``, by path, in order.

    Skips the test without a folder of archives, and where that lacks the package.
    """
    return dict(sorted((name, data) for name, data in _matching(archive(package), pattern)))


def archive(package: str) -> Path:
    """The archive of a package of ``requirements.txt``, in the folder that OUTSIDE names; else skips the test."""
    if not (folder := os.environ.get("OUTSIDE")):
        pytest.skip("OUTSIDE names no folder with archives of packages: `make outside` downloads them")
    pins = dict(re.findall(r"^([\w-]+)==(\S+)", _PINS.read_text(), re.MULTILINE))
    wanted = f"{package.replace('-', '_')}-{pins[package]}"
    found = [path for path in sorted(Path(folder).glob(f"{wanted}*")) if path.suffix in (".gz", ".whl")]
    if not found:
        pytest.skip(f"{folder} lacks the archive of {package} {pins[package]}: `make outside` downloads it")
    return found[0]


def _matching(path: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            yield from ((name, wheel.read(name)) for name in wheel.namelist() if fnmatch(name, pattern))
        return
    with tarfile.open(path) as source:
        for member in source:
            if member.isfile() and fnmatch(member.name, pattern) and (file := source.extractfile(member)):
                yield member.name, file.read()
