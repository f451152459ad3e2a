"""Compiles the library for this machine once, and finds it again.

``python -m outrider.kernels.native.build DIRECTORY`` compiles it for every level of the architecture, for images that
are built on one machine and run on others without a compiler: `OUTRIDER_NATIVE` then names that directory.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_SOURCE = Path(__file__).parent / "source"
_FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-pthread", "-ffp-contract=fast", "-fno-math-errno", "-Wno-psabi")
_COMPILERS = ("c++", "g++", "clang++")


class NativeUnavailable(Exception):
    """There is no compiled library for this machine, and none can be made."""


@dataclass(frozen=True, slots=True)
class Level:
    """What a library is compiled for: compiler's flags, and what the CPU must have, as Linux names it."""

    name: str
    flags: tuple[str, ...]
    needs: frozenset[str]


_V3 = frozenset(["avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"])
_V4 = _V3 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])
_X86 = (
    Level(
        "amx",
        ("-march=x86-64-v4", "-mavx512bf16", "-mamx-tile", "-mamx-bf16"),
        _V4 | {"avx512_bf16", "amx_tile", "amx_bf16"},
    ),
    Level("avx512bf16", ("-march=x86-64-v4", "-mavx512bf16"), _V4 | {"avx512_bf16"}),
    Level("avx512", ("-march=x86-64-v4",), _V4),
    Level("avx2", ("-march=x86-64-v3",), _V3),
)
_ANY = Level("generic", (), frozenset())


def levels() -> tuple[Level, ...]:
    """Of this architecture, the quickest first."""
    return (*_X86, _ANY) if platform.machine() == "x86_64" else (_ANY,)


@cache
def library() -> ctypes.CDLL:
    """The quickest library that this machine runs, compiled if it was not yet.

    Raises:
        NativeUnavailable: says why there is none.
    """
    flags = _cpu_flags()
    able = [level for level in levels() if level.needs <= flags]
    for level in able:
        loaded = _load(level)
        if loaded.outrider_usable():
            return loaded
    raise NativeUnavailable("this CPU runs none of the compiled libraries")


def brief(loaded: ctypes.CDLL) -> ctypes.PyDLL:
    """The same library for calls of microseconds, which keep the interpreter's lock.

    One that gives it up gets it back when the other thread is through with what it does, which may take longer than
    the call.
    """
    return ctypes.PyDLL(loaded._name)


def _load(level: Level) -> ctypes.CDLL:
    path = _path(level)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise NativeUnavailable(f"{path} cannot be loaded: {error}") from None


def _path(level: Level) -> Path:
    if given := os.environ.get("OUTRIDER_NATIVE"):
        path = Path(given) / _path_name(level)
        if not path.exists():
            raise NativeUnavailable(f"OUTRIDER_NATIVE is {given!r}, where there is no {path.name}")
        return path
    path = _cache() / _path_name(level)
    if not path.exists():
        compile_to(path, level)
    return path


def compile_to(path: Path, level: Level) -> None:
    """Compiles the library of a level to ``path``; `NativeUnavailable` where that does not work."""
    compiler = _compiler()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".so", delete=False) as made:
            units = [str(unit) for unit in sorted(_SOURCE.glob("*.cpp"))]
            command = [*compiler, *_FLAGS, *level.flags, *units, "-o", made.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            Path(made.name).unlink()
            last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
            raise NativeUnavailable(f"{shlex.join(compiler)} failed: {last[0]}")
        Path(made.name).chmod(0o755)
        Path(made.name).replace(path)
    except OSError as error:
        raise NativeUnavailable(f"{path.parent}: {error}") from None


def _compiler() -> list[str]:
    if asked := os.environ.get("CXX"):
        return shlex.split(asked)
    for name in _COMPILERS:
        if found := shutil.which(name):
            return [found]
    raise NativeUnavailable(f"there is no C++ compiler ({', '.join(_COMPILERS)}; or name one by CXX)")


@cache
def _path_name(level: Level) -> str:
    """Named for all that the library is made from."""
    digest = hashlib.sha256(" ".join((*_FLAGS, *level.flags)).encode())
    for file in sorted(_SOURCE.iterdir()):
        digest.update(file.read_bytes())
    return f"{level.name}-{digest.hexdigest()[:16]}.so"


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "outrider" / "native"


def _cpu_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    found = next((line for line in lines if line.startswith("flags")), ":")
    return frozenset(found.split(":", 1)[1].split())


def main() -> None:
    """Compiles every level to the directory named on the command line."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m outrider.kernels.native.build DIRECTORY")
    for level in levels():
        path = Path(sys.argv[1]) / _path_name(level)
        compile_to(path, level)
        print(path)


if __name__ == "__main__":
    main()
