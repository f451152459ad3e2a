"""Runs zig's C++ compiler for another machine: ``zig.py x86_64|aarch64|arm64 ARGUMENT...`` (`make wheels`).

The first two are Linux with glibc 2.28, `arm64` is macOS 11.

zig compiles its C++ library anew for each CPU that ``-march`` or ``-m`` names, for minutes. Named to clang alone
(``-target-feature``), all levels of a machine share one.
"""

from __future__ import annotations

import os
import sys

_V3 = ("avx2", "fma", "bmi", "bmi2", "f16c", "movbe", "lzcnt")
_FEATURES = {
    "-march=x86-64-v3": _V3,
    "-march=x86-64-v4": (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}


def features(argument: str) -> tuple[str, ...]:
    """clang's names of the features that gcc's flag ``argument`` turns on; none of another flag."""
    if argument.startswith("-march=arm"):
        version, *more = argument.removeprefix("-march=arm").split("+")
        return (version.removesuffix("-a"), *more)
    if argument.startswith(("-mavx", "-mamx")):
        return (argument.removeprefix("-m"),)
    return _FEATURES.get(argument, ())


def translated(argument: str) -> list[str]:
    """zig's arguments for gcc's ``argument``."""
    return [word for name in features(argument) for word in ("-Xclang", "-target-feature", "-Xclang", f"+{name}")]


def main(machine: str, *arguments: str) -> None:
    """Becomes the compiler."""
    target = "aarch64-macos.11.0" if machine == "arm64" else f"{machine}-linux-gnu.2.28"
    kept = [each for each in arguments if machine != "arm64" or not each.startswith("-Wl,--version-script")]
    others = [word for each in kept for word in translated(each) or [each]]
    command = ["-m", "ziglang", "c++", "-target", target, "-mcpu=baseline", "-s", "-w"]
    os.execv(sys.executable, [sys.executable, *command, *others])


if __name__ == "__main__":
    main(*sys.argv[1:])
