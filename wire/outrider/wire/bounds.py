"""Bounds of parameters, each with its description, and the check that every edge of the mesh uses.

A parameter's type is `Annotated` with `msgspec.Meta`. Decoders and the OpenAPI document read the bounds in it; a
refusal quotes its description.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

T = TypeVar("T", bound=msgspec.Struct)

INT32 = (1 << 31) - 1
MOST_PRIORITY = 1000
MOST_WEIGHT = 1000

_SHOWN = 40
_KEY = "key` in `$"
_PLACE = re.compile(rf" - at `(\$.*|{re.escape(_KEY)})`$")


class OutOfBounds(ValueError):
    """A value of the parameter ``param`` is not allowed; the text names both, and the allowed values."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


def numbers(least: float, most: float) -> Meta:
    """Numbers from ``least`` to ``most``."""
    return Meta(ge=least, le=most, description=f"a number from {least:g} to {most:g}")


def numbers_above(least: float, most: float) -> Meta:
    """Numbers above ``least`` and at most ``most``."""
    return Meta(gt=least, le=most, description=f"a number above {least:g} and at most {most:g}")


def integers(least: int, most: int, note: str = "") -> Meta:
    """Integers from ``least`` to ``most``; the description ends with ``note``."""
    return Meta(ge=least, le=most, description=f"an integer from {least} to {most}{note}")


def integers_from(least: int, note: str = "") -> Meta:
    """Integers of at least ``least`` that fit into an int32; the description ends with ``note``."""
    return Meta(ge=least, le=INT32, description=f"an integer of at least {least}{note}")


Flag = Annotated[bool, Meta(description="true or false")]
Count = Annotated[int, integers_from(1)]
TokenId = Annotated[int, Meta(ge=0, le=INT32)]
Priority = Annotated[int, integers(-MOST_PRIORITY, MOST_PRIORITY)]
Weight = Annotated[float, numbers_above(0, MOST_WEIGHT)]


def checked(name: str, value: Any, hint: Any, *, strict: bool = True) -> Any:
    """``value`` as the type ``hint``; `OutOfBounds` names the fault; callers know the parameter as ``name``.

    Where it is not ``strict``, text may stand for numbers and booleans.
    """
    try:
        return msgspec.convert(value, hint, strict=strict, str_keys=True)
    except msgspec.ValidationError as error:
        why, path = str(error), name
        if (place := _PLACE.search(why)) is not None:
            why = why[: place.start()]
            path += _fault_path(value, hint, place[1], why)
    if path == name:
        raise OutOfBounds(f"{name} must be {describe(hint)}{_not_value(value)}", name)
    raise OutOfBounds(f"{path}: {why[:1].lower()}{why[1:]}; {name} must be {describe(hint)}", path)


def read(kind: type[T], values: Mapping[str, Any], place: str = "") -> T:
    """A struct ``kind`` from ``values`` by field, each `checked`; a refusal puts ``place`` before the field's name."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError:
        hints = hints_of(kind)
        return kind(**{name: checked(place + name, value, hints[name]) for name, value in values.items()})


@lru_cache
def hints_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The types of a struct's fields, with their bounds."""
    return typing.get_type_hints(kind, include_extras=True)


def describe(hint: Any) -> str:
    """The outermost description in a type that may be optional."""
    if isinstance(hint, Meta):
        return hint.description or ""
    return next(filter(None, map(describe, reversed(typing.get_args(hint)))), "")


def _fault_path(value: Any, hint: Any, place: str, why: str) -> str:
    """The path from ``value`` to the fault at ``place`` as msgspec names it, with the key that msgspec omits."""
    if isinstance(value, dict) and (place.startswith("$[...]") or (place == _KEY and "`int`" in why)):
        return f".{next(key for key, each in value.items() if not _fits({key: each}, hint))}"
    return "" if place == _KEY else place.removeprefix("$")


def _fits(value: Any, hint: Any) -> bool:
    try:
        msgspec.convert(value, hint, str_keys=True)
    except msgspec.ValidationError:
        return False
    return True


def _not_value(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return ""
    shown = f"{value:.7g}" if isinstance(value, float) else msgspec.json.encode(value).decode()
    return f", not {shown}" if len(shown) <= _SHOWN else f", not {shown[:_SHOWN]}…"
