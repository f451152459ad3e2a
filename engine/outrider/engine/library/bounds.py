"""Bounds of users' parameters, those of a mesh's APIs. A refusal names the parameter and what it may be."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass
from typing import Any, NoReturn

from outrider.engine.errors import RequestError

INT32 = (1 << 31) - 1
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers from ``least``, or with ``above`` from above it, to ``most``."""

    least: float
    most: float
    above: bool = False

    def check(self, name: str, value: Any) -> None:
        """Raises `RequestError` unless ``value`` is one of them."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not self.least <= value <= self.most or (self.above and value == self.least):
            refuse(name, str(self), value)

    def __str__(self) -> str:
        least, most = f"{self.least:g}", f"{self.most:g}"
        return f"a number above {least} and at most {most}" if self.above else f"a number from {least} to {most}"


@dataclass(frozen=True, slots=True)
class Integers:
    """Integers from ``least`` to ``most``, and None where that has a ``meaning``."""

    least: int
    most: int
    meaning: str = ""

    def check(self, name: str, value: Any) -> None:
        """Raises `RequestError` unless ``value`` is one of them."""
        if value is None and self.meaning:
            return
        if not isinstance(value, int) or isinstance(value, bool) or not self.least <= value <= self.most:
            refuse(name, str(self), value)

    def __str__(self) -> str:
        span = f"of at least {self.least}" if self.most == INT32 else f"from {self.least} to {self.most}"
        return f"an integer {span}" + (f", or None for {self.meaning}" if self.meaning else "")


class Flag:
    """True or False."""

    def check(self, name: str, value: Any) -> None:
        """Raises `RequestError` unless ``value`` is one of them."""
        if not isinstance(value, bool):
            refuse(name, "True or False", value)


TOKEN_IDS = Integers(0, INT32)


def check_length(name: str, values: Any, kind: type[Sized] | tuple[type[Sized], ...], most: int, allowed: str) -> None:
    """Raises `RequestError` unless ``values`` are of the ``kind`` of collection and at most ``most``."""
    if not isinstance(values, kind) or len(values) > most:
        refuse(name, allowed, values)


def check_text(name: str, value: Any) -> None:
    """Raises `RequestError` unless ``value`` is a text of 1 to 1000 characters."""
    if not isinstance(value, str) or not 1 <= len(value) <= 1000:
        refuse(name, "a text of 1 to 1000 characters", value)


def refuse(name: str, allowed: str, value: Any) -> NoReturn:
    """Raises the `RequestError` for a ``value`` that the parameter ``name`` may not have."""
    if isinstance(value, Mapping | list | tuple | set):
        shown = ""
    else:
        text = f"{value:.7g}" if isinstance(value, float) else repr(value)
        shown = f", not {text}" if len(text) <= _SHOWN else f", not {text[:_SHOWN]}…"
    raise RequestError(f"{name} must be {allowed}{shown}", param=name)
