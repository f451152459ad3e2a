"""Levels of x86-64 that the C++ is compiled for, and those that a CPU supports.

The environment variable ``OUTRIDER_NATIVE_LEVEL`` names one level, which then is the only one that runs.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Level:
    """A level of x86-64: the compiler's flags, and the CPU's flags that it needs, as Linux names them."""

    name: str
    flags: tuple[str, ...]
    needs: frozenset[str]


_V3 = frozenset(["avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"])
_V4 = _V3 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])
_VNNI = _V4 | {"avx512_vnni"}
_BF16 = _VNNI | {"avx512_bf16"}
_BF16_FLAGS = ("-march=x86-64-v4", "-mavx512vnni", "-mavx512bf16")
LEVELS = (
    Level("amx", (*_BF16_FLAGS, "-mamx-tile", "-mamx-bf16"), _BF16 | {"amx_tile", "amx_bf16"}),
    Level("avx512bf16", _BF16_FLAGS, _BF16),
    Level("avx512vnni", ("-march=x86-64-v4", "-mavx512vnni"), _VNNI),
    Level("avx512", ("-march=x86-64-v4",), _V4),
    Level("avx2", ("-march=x86-64-v3",), _V3),
)
"""The quickest first."""


_VARIABLE = "OUTRIDER_NATIVE_LEVEL"


class LevelError(Exception):
    """``OUTRIDER_NATIVE_LEVEL`` names no level that this CPU supports."""


def is_x86_64() -> bool:
    """Whether this machine is an x86-64, for which alone there are levels."""
    return platform.machine() == "x86_64"


def supported_levels() -> tuple[Level, ...]:
    """The levels that this machine's CPU supports, the quickest first; or the one that ``OUTRIDER_NATIVE_LEVEL`` names.

    Raises:
        LevelError: the variable names no level, or one that the CPU does not support.
    """
    flags = cpu_flags() if is_x86_64() else frozenset()
    supported = tuple(level for level in LEVELS if level.needs <= flags)
    if (name := os.environ.get(_VARIABLE)) is None:
        return supported
    if chosen := tuple(level for level in supported if level.name == name):
        return chosen
    allowed = ", ".join(level.name for level in supported)
    why = ", which this CPU does not support" if name in {level.name for level in LEVELS} else ""
    raise LevelError(f"{_VARIABLE} is {name!r}{why}; here it must be {f'one of {allowed}' if allowed else 'unset'}")


def cpu_flags() -> frozenset[str]:
    """The CPU's flags, as Linux names them; empty where Linux does not list them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    flags = next((line for line in lines if line.startswith("flags")), ":")
    return frozenset(flags.split(":", 1)[1].split())
