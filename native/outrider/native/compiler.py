"""Compiles the C++ into a library for each level of a machine. Needs no package, for the wheel's build."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from outrider.native.levels import LEVELS, Level
from outrider.native.share import cores

SOURCE = Path(__file__).parent / "source"
HEADER = SOURCE / "outrider_native.h"
LIBRARIES = Path(__file__).parent / "libraries"
"""The folder of libraries, whose names contain a digest of sources and flags."""
LANGUAGE = ("-std=c++17", "-pthread", "-ffp-contract=fast", "-fno-math-errno", "-fvisibility=hidden")
"""Flags that the sources need wherever they are compiled."""
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wno-psabi", "-Wno-maybe-uninitialized")
"""Warnings, of which the sources have none. psabi notes that vectors pass between functions in another way than without
AVX; maybe-uninitialized is wrong about gcc 12's own intrinsics (gcc's bug 105593)."""
_EXPORTS = SOURCE / "outrider_native.map"
"""The linker's list of what a library exports: `-fvisibility` leaves the standard library's templates visible. macOS
needs none, since it looks symbols up by library."""
_FLAGS = ("-O3", "-shared", "-fPIC", *LANGUAGE, *WARNINGS)
_COMPILERS = ("c++", "g++", "clang++")


class CompilerError(Exception):
    """There is no C++ compiler, or it fails."""


def abi() -> str:
    """SHA-256 of the header, in hexadecimal."""
    return hashlib.sha256(HEADER.read_bytes()).hexdigest()


def path_of(level: Level) -> Path:
    """The path of a level's library; other sources or flags have another path."""
    return LIBRARIES / f"{level.name}-{_digest(level)[:16]}.so"


def _digest(level: Level) -> str:
    digest = hashlib.sha256(" ".join((*_FLAGS, *level.flags)).encode())
    for file in sorted((*SOURCE.glob("*.cpp"), *SOURCE.glob("*.h"), *SOURCE.glob("*.map"))):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def compiler() -> list[str]:
    """The command of the C++ compiler: the value of the environment variable ``CXX``, or a compiler on the path.

    Raises:
        CompilerError: there is none, or no program of the name in ``CXX``.
    """
    if command := shlex.split(os.environ.get("CXX", "")):
        if shutil.which(command[0]) is None:
            raise CompilerError(f"CXX names {command[0]}, which is no program here; unset it, or name g++ or clang++")
        return command
    for name in _COMPILERS:
        if path := shutil.which(name):
            return [path]
    raise CompilerError(f"there is no C++ compiler ({', '.join(_COMPILERS)}; or name one by CXX)")


def roundings(command: list[str]) -> list[str]:
    """Flags with which the compiler heeds `philox.h`, where a product and a sum may not become one operation.

    With ``-ffp-contract=fast``, clang ignores the pragma that says so, and draws are other tokens.
    """
    told = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    return ["-ffp-contract=on"] if "clang" in told else []


def ensure(level: Level) -> Path:
    """The path of a level's library. Compiles the library if it is not there, and removes those of other sources.

    Processes wait for each other, so that only one compiles.

    Raises:
        CompilerError: there is no compiler, it fails, or the folder cannot be written.
    """
    path = path_of(level)
    if path.exists():
        return path
    command = compiler()
    try:
        LIBRARIES.mkdir(parents=True, exist_ok=True)
        with _locked(LIBRARIES / f".{level.name}.lock"):
            if not path.exists():
                _compile(command, level, path)
                _remove_others(path, level)
    except OSError as error:
        raise CompilerError(f"{LIBRARIES}: {error}") from None
    return path


def ensure_all(levels: Iterable[Level] = LEVELS) -> tuple[list[Path], list[str]]:
    """Compiles the libraries of ``levels`` side by side on all cores; other machines than `MACHINES` have no levels.

    The build hook (`hatch_build.py`) calls it at installation, so that a wheel contains all levels. A running process
    calls `ensure`, and only in a source tree, for the level that it loads.

    Returns:
        Paths of the libraries, and a message for each level that could not be compiled.
    """

    def compiled(level: Level) -> Path | str:
        try:
            return ensure(level)
        except CompilerError as error:
            return str(error)

    with ThreadPoolExecutor(cores()) as pool:
        results = list(pool.map(compiled, levels))
    return [each for each in results if isinstance(each, Path)], [each for each in results if isinstance(each, str)]


@contextmanager
def _locked(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile(command: list[str], level: Level, path: Path) -> None:
    units = [str(unit) for unit in sorted(SOURCE.glob("*.cpp"))]
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:
        library = Path(directory) / path.name
        flags = [*_FLAGS, *roundings(command), *level.flags, f'-DOUTRIDER_ABI="{abi()}"']
        if sys.platform != "darwin":
            flags.append(f"-Wl,--version-script={_EXPORTS}")
        completed = subprocess.run(
            [*command, *flags, *units, "-o", str(library)], capture_output=True, text=True, check=False
        )
        if completed.returncode:
            last = completed.stderr.strip().splitlines()[-1:] or ["it said nothing"]
            raise CompilerError(f"{shlex.join(command)} failed: {last[0]}")
        library.chmod(0o755)
        library.replace(path)


def _remove_others(path: Path, level: Level) -> None:
    for other in path.parent.glob(f"{level.name}-*.so"):
        if other != path:
            with suppress(FileNotFoundError):
                other.unlink()
