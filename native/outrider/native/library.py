"""Loads the best library that this machine runs, with the functions and types of `source/outrider_native.h`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import cffi
from outrider.native import presence
from outrider.native.compiler import HEADER, CompilerError, abi, ensure, path_of
from outrider.native.levels import Level, able

ffi = cffi.FFI()
"""Types of the header: the same text that the C++ is compiled with."""
ffi.cdef(HEADER.read_text())


class NativeUnavailable(Exception):
    """There is no compiled library for this machine, and none can be made."""


class Library:
    """A compiled library.

    Attributes:
        path: of its file, whose name tells the level and the sources.
        functions: by the names of the header. They let other threads run, and take `ffi`'s pointers.

    Raises:
        NativeUnavailable: it cannot be loaded, or was compiled with another header.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.functions: Any = ffi.dlopen(str(path))
        except OSError as error:
            raise NativeUnavailable(f"{path} cannot be loaded: {error}") from None
        if ffi.string(self.functions.outrider_abi()).decode() != abi():
            raise NativeUnavailable(f"{path} was compiled with another outrider_native.h")

    @property
    def usable(self) -> bool:
        """Whether the machine lets it run."""
        return bool(self.functions.outrider_usable())

    def brief(self, name: str) -> Callable[..., Any]:
        """A function for calls of microseconds, which keep the interpreter's lock; pointers are given as `at` says.

        A call that gives the lock up waits for it afterwards, which may take longer than the call. cffi always gives it
        up. So ctypes makes these calls, with the types that `ffi` read.
        """
        function = getattr(self.functions, name)
        kind = ffi.typeof(function)
        prototype = ctypes.PYFUNCTYPE(_plain(kind.result), *map(_plain, kind.args))
        return prototype(int(ffi.cast("uintptr_t", function)))


_NUMBERS = {"int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "float": ctypes.c_float}
_ADDRESS = ffi.typeof("uintptr_t")


def _plain(kind: Any) -> Any:
    """What ctypes calls a type of `ffi`; `KeyError` for one that no brief function has."""
    if kind.kind == "void":
        return None
    return ctypes.c_void_p if kind.kind == "pointer" else _NUMBERS[kind.cname]


def load(level: Level) -> Library:
    """The library of a level. In a source tree, compiles it if it is not there.

    Raises:
        NativeUnavailable: there is none, or it cannot be loaded.
    """
    try:
        path = ensure(level) if presence.in_checkout() else path_of(level)
    except CompilerError as error:
        raise NativeUnavailable(str(error)) from None
    if not path.exists():
        raise NativeUnavailable(f"there is no {path}")
    return Library(path)


@cache
def library() -> Library:
    """The library of the quickest level that this machine runs.

    Raises:
        NativeUnavailable: says why there is none.
    """
    why = presence.absence()
    for level in able():
        try:
            if (loaded := load(level)).usable:
                return loaded
        except NativeUnavailable as error:
            why = why or str(error)
    raise NativeUnavailable(why or "this CPU runs none of the compiled libraries")


def at(pointer: Any) -> int:
    """Where a pointer of `ffi` points, for as long as that lives."""
    return int(ffi.cast(_ADDRESS, pointer))


def address(tensor: Any) -> Any:
    """Where the numbers of a tensor begin."""
    return ffi.cast("void *", tensor.data_ptr())
