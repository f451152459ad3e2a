"""Levels of x86-64 and ARM64 that the C++ is compiled for, and those that a CPU supports.

The environment variable ``OUTRIDER_NATIVE_LEVEL`` names one level, which then is the only one that runs.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Level:
    """A level of a machine: the compiler's flags, and the CPU's flags that it needs, as Linux names them."""

    name: str
    flags: tuple[str, ...]
    needs: frozenset[str]


_V3 = frozenset(["avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"])
_V4 = _V3 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])
_VNNI = _V4 | {"avx512_vnni"}
_BF16 = _VNNI | {"avx512_bf16"}
_BF16_FLAGS = ("-march=x86-64-v4", "-mavx512vnni", "-mavx512bf16")
X86_64 = (
    Level("amx", (*_BF16_FLAGS, "-mamx-tile", "-mamx-bf16"), _BF16 | {"amx_tile", "amx_bf16"}),
    Level("avx512bf16", _BF16_FLAGS, _BF16),
    Level("avx512vnni", ("-march=x86-64-v4", "-mavx512vnni"), _VNNI),
    Level("avx512", ("-march=x86-64-v4",), _V4),
    Level("avxvnni", ("-march=x86-64-v3", "-mavxvnni"), _V3 | {"avx_vnni"}),
    Level("avx2", ("-march=x86-64-v3",), _V3),
)
"""The quickest first."""
AARCH64 = (
    Level("i8mm", ("-march=armv8.2-a+dotprod+i8mm",), frozenset(["asimd", "asimddp", "i8mm"])),
    Level("dotprod", ("-march=armv8.2-a+dotprod",), frozenset(["asimd", "asimddp"])),
    Level("neon", (), frozenset(["asimd"])),
)
"""The quickest first. A row has the same bits at all of them."""
MACHINES: dict[str, tuple[Level, ...]] = {"x86_64": X86_64, "aarch64": AARCH64, "arm64": AARCH64}
"""By the machine's name, which is `arm64` on macOS."""
LEVELS = MACHINES.get(platform.machine(), ())
"""Of this machine."""

_VARIABLE = "OUTRIDER_NATIVE_LEVEL"
_HWCAP, _HWCAP2 = 16, 26
_ARM_BITS = {"asimd": (_HWCAP, 1), "asimddp": (_HWCAP, 20), "i8mm": (_HWCAP2, 13)}
_MACOS = {"asimd": "AdvSIMD", "asimddp": "arm.FEAT_DotProd", "i8mm": "arm.FEAT_I8MM"}


class LevelError(Exception):
    """``OUTRIDER_NATIVE_LEVEL`` names no level that this CPU supports."""


def supported_levels() -> tuple[Level, ...]:
    """The levels that this machine's CPU supports, the quickest first; or the one that ``OUTRIDER_NATIVE_LEVEL`` names.

    Raises:
        LevelError: the variable names no level, or one that the CPU does not support.
    """
    flags = cpu_flags()
    supported = tuple(level for level in LEVELS if level.needs <= flags)
    if (name := os.environ.get(_VARIABLE)) is None:
        return supported
    if chosen := tuple(level for level in supported if level.name == name):
        return chosen
    allowed = ", ".join(level.name for level in supported)
    why = ", which this CPU does not support" if name in {level.name for level in LEVELS} else ""
    raise LevelError(f"{_VARIABLE} is {name!r}{why}; here it must be {f'one of {allowed}' if allowed else 'unset'}")


def cpu_flags() -> frozenset[str]:
    """The CPU's flags, as Linux names them; empty where the system does not list them."""
    if sys.platform == "darwin":
        return macos_flags(_sysctl)
    if LEVELS is AARCH64:
        getauxval = ctypes.CDLL(None).getauxval
        getauxval.argtypes, getauxval.restype = (ctypes.c_ulong,), ctypes.c_ulong
        return arm_flags({word: getauxval(word) for word in (_HWCAP, _HWCAP2)})
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    flags = next((line for line in lines if line.startswith("flags")), ":")
    return frozenset(flags.split(":", 1)[1].split())


def arm_flags(words: Mapping[int, int]) -> frozenset[str]:
    """Those flags that `AARCH64` needs, of ``getauxval``'s words by their numbers (Linux's ``uapi/asm/hwcap.h``).

    Unlike ``/proc/cpuinfo``, the words are those of the CPU that qemu's user mode emulates.
    """
    return frozenset(name for name, (word, bit) in _ARM_BITS.items() if words[word] >> bit & 1)


def macos_flags(sysctl: Callable[[str], int]) -> frozenset[str]:
    """Those flags that `AARCH64` needs, of macOS's values below ``hw.optional`` (Apple's "Determining Instruction Set
    Characteristics"): 1 for what the CPU has.
    """
    return frozenset(name for name, feature in _MACOS.items() if sysctl(f"hw.optional.{feature}") == 1)


def _sysctl(name: str) -> int:
    """A value of macOS's kernel; 0 where it has none of the name."""
    value, size = ctypes.c_int(), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
    ctypes.CDLL(None).sysctlbyname(name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t())
    return value.value
