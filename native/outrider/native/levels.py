"""Levels of x86-64 that the C++ is compiled for, and which of them a CPU has."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Level:
    """What a library is compiled for: compiler's flags, and what the CPU must have, as Linux names it."""

    name: str
    flags: tuple[str, ...]
    needs: frozenset[str]


_V3 = frozenset(["avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"])
_V4 = _V3 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])
_BF16 = _V4 | {"avx512_bf16"}
LEVELS = (
    Level("amx", ("-march=x86-64-v4", "-mavx512bf16", "-mamx-tile", "-mamx-bf16"), _BF16 | {"amx_tile", "amx_bf16"}),
    Level("avx512bf16", ("-march=x86-64-v4", "-mavx512bf16"), _BF16),
    Level("avx512", ("-march=x86-64-v4",), _V4),
    Level("avx2", ("-march=x86-64-v3",), _V3),
)
"""The quickest first."""


def is_x86_64() -> bool:
    """Whether there are levels for this machine at all."""
    return platform.machine() == "x86_64"


def able() -> tuple[Level, ...]:
    """The levels that this machine's CPU has, the quickest first."""
    flags = cpu_flags() if is_x86_64() else frozenset()
    return tuple(level for level in LEVELS if level.needs <= flags)


def cpu_flags() -> frozenset[str]:
    """What the CPU has, as Linux names it; nothing where Linux does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    found = next((line for line in lines if line.startswith("flags")), ":")
    return frozenset(found.split(":", 1)[1].split())
