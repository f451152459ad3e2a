"""Compiles the C++ into a library for each level of x86-64. Imports nothing but Python, for the build of the wheel."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from outrider.native.levels import LEVELS, Level, is_x86_64

SOURCE = Path(__file__).parent / "source"
HEADER = SOURCE / "outrider_native.h"
LIBRARIES = Path(__file__).parent / "libraries"
"""Where libraries are kept, named for all that they are made from."""
_FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-pthread", "-ffp-contract=fast", "-fno-math-errno", "-Wno-psabi")
_COMPILERS = ("c++", "g++", "clang++")


class CompilerError(Exception):
    """There is no C++ compiler, or it fails."""


def abi() -> str:
    """SHA-256 of the header, in hexadecimal."""
    return hashlib.sha256(HEADER.read_bytes()).hexdigest()


def path_of(level: Level) -> Path:
    """Where the library of a level is kept; another path for other sources or flags."""
    return LIBRARIES / f"{level.name}-{_digest(level)[:16]}.so"


def _digest(level: Level) -> str:
    digest = hashlib.sha256(" ".join((*_FLAGS, *level.flags)).encode())
    for file in sorted((*SOURCE.glob("*.cpp"), *SOURCE.glob("*.h"))):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def compiler() -> list[str]:
    """The command of the C++ compiler: what the environment variable ``CXX`` names, or one that is found.

    Raises:
        CompilerError: there is none.
    """
    if asked := os.environ.get("CXX"):
        return shlex.split(asked)
    for name in _COMPILERS:
        if found := shutil.which(name):
            return [found]
    raise CompilerError(f"there is no C++ compiler ({', '.join(_COMPILERS)}; or name one by CXX)")


def ensure(level: Level) -> Path:
    """The path of a level's library. Compiles the library if it is not there, and removes those of other sources.

    Processes take turns, so that one compiles and the others find the library.

    Raises:
        CompilerError: there is no compiler, it fails, or the folder cannot be written.
    """
    path = path_of(level)
    if path.exists():
        return path
    command = compiler()
    try:
        LIBRARIES.mkdir(exist_ok=True)
        with _alone(LIBRARIES / f".{level.name}.lock"):
            if not path.exists():
                _compile(command, level, path)
                _drop_others(path, level)
    except OSError as error:
        raise CompilerError(f"{LIBRARIES}: {error}") from None
    return path


def ensure_all(levels: Iterable[Level] = LEVELS) -> tuple[list[Path], list[str]]:
    """The libraries of ``levels``, compiled side by side on all cores; and why others could not be compiled."""
    levels = list(levels) if is_x86_64() else []

    def made(level: Level) -> Path | str:
        try:
            return ensure(level)
        except CompilerError as error:
            return str(error)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = list(pool.map(made, levels))
    return [each for each in found if isinstance(each, Path)], [each for each in found if isinstance(each, str)]


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _compile(command: list[str], level: Level, path: Path) -> None:
    units = [str(unit) for unit in sorted(SOURCE.glob("*.cpp"))]
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:
        made = Path(directory) / path.name
        flags = [*_FLAGS, *level.flags, f'-DOUTRIDER_ABI="{abi()}"']
        done = subprocess.run([*command, *flags, *units, "-o", str(made)], capture_output=True, text=True, check=False)
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
            raise CompilerError(f"{shlex.join(command)} failed: {last[0]}")
        made.chmod(0o755)
        made.replace(path)


def _drop_others(path: Path, level: Level) -> None:
    for other in path.parent.glob(f"{level.name}-*.so"):
        if other != path:
            with suppress(FileNotFoundError):
                other.unlink()
