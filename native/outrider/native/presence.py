"""Whether there is compiled code for this machine, and the notice where there is none. Needs no package."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from outrider.native import compiler
from outrider.native.compiler import CompilerError, path_of
from outrider.native.levels import LEVELS, supported_levels

_LOSS = "decoding on the CPU runs in PyTorch, at half the speed or less"


def in_checkout() -> bool:
    """Whether this package lies in a source tree, where sources change and are compiled again when they do."""
    return (Path(__file__).parents[3] / "hatch_build.py").exists()


def absence() -> str | None:
    """Why there is no compiled code; None where there is some, or where the first process that needs it compiles it.

    Raises:
        LevelError: ``OUTRIDER_NATIVE_LEVEL`` is wrong.
    """
    levels = supported_levels()
    if not LEVELS:
        return "it is written for x86-64 and ARM64"
    if not levels:
        return f"this CPU has no {LEVELS[-1].name.upper()}"
    if not any(path_of(level).exists() for level in levels):
        if not in_checkout():
            return "the wheel was built without a C++ compiler"
        try:
            compiler.compiler()
        except CompilerError:
            return "its sources are not compiled as they stand, and there is no C++ compiler"
    return None if find_spec("cffi") else "cffi, which loads it, is not installed"


def notice() -> str | None:
    """One line for users where compiled code is missing or yet to be compiled; None where it is there.

    Raises:
        LevelError: ``OUTRIDER_NATIVE_LEVEL`` is wrong.
    """
    if (why := absence()) is not None:
        remedies = {"compiler": " Install g++ and reinstall.", "cffi": " Try pip install 'outrider[engine]'."}
        remedy = next((remedies[cause] for cause in remedies if cause in why), "")
        return f"No compiled code: {why}; {_LOSS}.{remedy}"
    if in_checkout() and not path_of(supported_levels()[0]).exists():
        return "The C++ is not compiled as it stands: the first process that decodes compiles it, for a minute or two."
    return None
