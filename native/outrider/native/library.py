"""Loads the best library that this machine runs, with the functions and types of `source/outrider_native.h`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from outrider.native import presence
from outrider.native.compiler import HEADER, CompilerError, abi, ensure, path_of
from outrider.native.levels import Level, supported_levels

try:
    import cffi
except ModuleNotFoundError:
    ffi: Any = None
    """Types of the header: the same text that the C++ is compiled with. None without cffi: there is no library then."""
else:
    ffi = cffi.FFI()
    ffi.cdef(HEADER.read_text().replace("OUTRIDER_NOEXCEPT", ""))


_ERRORS: dict[str, tuple[type[Exception], str]] = {
    "OUTRIDER_BAD_ID": (IndexError, "a token id is not in the vocabulary"),
    "OUTRIDER_BAD_POSITION": (IndexError, "a position is beyond the model's context"),
    "OUTRIDER_BAD_PAGE": (ValueError, "a sequence names a page that the pool does not have"),
    "OUTRIDER_BAD_TREE": (ValueError, "a tree has more nodes than a step can walk"),
    "OUTRIDER_BAD_LOGIT": (ValueError, "a logit is not a number below the limit"),
    "OUTRIDER_OUT_OF_MEMORY": (MemoryError, "there is no memory left for a call of compiled code"),
    "OUTRIDER_NO_THREAD": (OSError, "the system starts no further thread for compiled code"),
    "OUTRIDER_FAILED": (RuntimeError, "a call of compiled code failed"),
}
_STATUSES: dict[int, str] = ffi.typeof("outrider_status").elements if ffi else {}


def status_name(status: int) -> str:
    """The header's name of an ``outrider_status``."""
    return _STATUSES[status]


def checked(status: int) -> None:
    """Raises the error that an ``outrider_status`` stands for; does nothing for ``OUTRIDER_OK``.

    Raises:
        IndexError: an id or a position is out of range.
        ValueError: a page, a tree or a logit cannot be used.
        MemoryError: an allocation failed.
        OSError: the system starts no further thread.
        RuntimeError: another error.
    """
    if status:
        error, text = _ERRORS[status_name(status)]
        raise error(text)


class NativeUnavailable(Exception):
    """There is no compiled library for this machine, and none can be made."""


class Library:
    """A compiled library.

    Attributes:
        path: of its file, whose name contains the level and a digest of the sources.
        level: name of the level.
        functions: the functions of the header. They let other threads run, and take `ffi`'s pointers.

    Raises:
        NativeUnavailable: the library cannot be loaded, or was compiled with another header.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.level = path, path.stem.rpartition("-")[0]
        try:
            self.functions: Any = ffi.dlopen(str(path))
        except OSError as error:
            raise NativeUnavailable(f"{path} cannot be loaded: {error}") from None
        if ffi.string(self.functions.outrider_abi()).decode() != abi():
            raise NativeUnavailable(f"{path} was compiled with another outrider_native.h")

    @property
    def usable(self) -> bool:
        """Whether this machine can run the library."""
        return bool(self.functions.outrider_usable())

    def brief_function(self, name: str) -> Callable[..., Any]:
        """A function for calls of microseconds, which keep the interpreter's lock; pointers are `pointer_value`s.

        A call that releases the lock waits for it afterwards, possibly longer than the call takes. cffi always releases
        the lock, so ctypes makes these calls, with the types that `ffi` read.
        """
        function = getattr(self.functions, name)
        kind = ffi.typeof(function)
        prototype = ctypes.PYFUNCTYPE(_ctypes_type(kind.result), *map(_ctypes_type, kind.args))
        return prototype(int(ffi.cast("uintptr_t", function)))


_NUMBERS = {"int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "float": ctypes.c_float}
_ADDRESS = ffi and ffi.typeof("uintptr_t")


def _ctypes_type(kind: Any) -> Any:
    """The ctypes form of a type of `ffi`; `KeyError` for a type that no brief function has."""
    if kind.kind == "void":
        return None
    if kind.kind == "enum":
        return ctypes.c_int
    return ctypes.c_void_p if kind.kind == "pointer" else _NUMBERS[kind.cname]


def load(level: Level) -> Library:
    """The library of a level. In a source tree, compiles it if it is not there.

    Raises:
        NativeUnavailable: the library does not exist or cannot be loaded.
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
    """The library of the quickest level that this machine runs, or of the one that ``OUTRIDER_NATIVE_LEVEL`` names.

    Raises:
        LevelError: the variable is wrong.
        NativeUnavailable: no library runs here; the message says why.
    """
    why = presence.absence()
    for level in supported_levels() if ffi else ():
        try:
            if (loaded := load(level)).usable:
                return loaded
        except NativeUnavailable as error:
            why = why or str(error)
    raise NativeUnavailable(why or "this CPU runs none of the compiled libraries")


def pointer_value(pointer: Any) -> int:
    """The address in a pointer of `ffi`, valid as long as the pointer lives."""
    return int(ffi.cast(_ADDRESS, pointer))


def data_pointer(tensor: Any) -> Any:
    """A pointer of `ffi` to a tensor's first element."""
    return ffi.cast("void *", tensor.data_ptr())
