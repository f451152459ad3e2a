"""Reading a request's parameters so that a refusal names the parameter, what it holds and what it may hold."""

from __future__ import annotations

import re
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from outrider.mesh.config.fields import nearest
from outrider.mesh.errors import InvalidRequest

T = TypeVar("T", bound=msgspec.Struct)

ANY: tuple[Any, ...] = ()
"""Neutral values of a parameter that changes nothing whatever it holds."""

ABSENT: dict[str, tuple[Any, ...]] = {
    "max_tokens": (-1,),
    "max_completion_tokens": (-1,),
    "max_output_tokens": (-1,),
    "top_k": (-1,),
    "stop": ("",),
}
"""Values by which clients of other servers say that a parameter is absent; null says so of every parameter."""


class Unhonoured(msgspec.Struct, frozen=True):
    """Parameters that are known and not honoured, each with the values that ask for nothing.

    Any other value of an ``altering`` one would change the answer if it were honoured, and one of an ``idle`` one
    would not.
    """

    altering: Mapping[str, tuple[Any, ...]] = {}
    idle: Mapping[str, tuple[Any, ...]] = {}


_NOTHING = Unhonoured()
_MOST_EXACT = 1 << 63
_PLACE = re.compile(r" - at `\$(.*)`$")
_SHOWN = 40


def read(body: bytes, kind: type[T], unhonoured: Unhonoured = _NOTHING, ignored: list[str] | None = None) -> T:
    """``body`` as ``kind``, whose fields' `Meta` descriptions say what they may hold; null is as good as absent.

    Names of parameters that have no effect go into ``ignored``; where that is None, such parameters are refused.
    `InvalidRequest` for anything else.
    """
    try:
        whole: T = _decoder(kind).decode(body)
        return whole
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _read_each(_object(body), kind, unhonoured, ignored)


def _read_each(raw: Mapping[str, Any], kind: type[T], unhonoured: Unhonoured, ignored: list[str] | None) -> T:
    """As `read`, one parameter after the other: it takes long, and knows what is wrong."""
    hints = _hints(kind)
    values: dict[str, Any] = {}
    for name, value in raw.items():
        if name not in hints:
            _pass_over(name, value, [*hints], unhonoured, ignored)
        elif value is not None and not _among(value := _integral(value), ABSENT.get(name, ())):
            values[name] = convert(name, value, hints[name])
    for name in _required(kind):
        if name not in values:
            raise _missing(name, hints[name], ignored)
    return kind(**values)


def _pass_over(name: str, value: Any, known: list[str], unhonoured: Unhonoured, ignored: list[str] | None) -> None:
    """Notes or refuses a parameter that is not honoured."""
    altering, idle = unhonoured.altering.get(name), unhonoured.idle.get(name)
    if ignored is None and altering is None and idle is None:
        known += [*unhonoured.altering, *unhonoured.idle]
        raise InvalidRequest(f"{name} is no parameter{nearest(name, known)}", param=name)
    if value is None:
        return
    if altering is not None:
        _require_neutral(name, value, altering)
    elif ignored is None:
        _require_neutral(name, value, idle or ())
    elif not _among(value, idle or ()):
        ignored.append(name)


def _missing(name: str, hint: Any, ignored: list[str] | None) -> InvalidRequest:
    """What is said where the required parameter ``name`` is not given: it may be one of an unknown name."""
    for other in ignored or ():
        if meant := nearest(other, [name]):
            return InvalidRequest(f"{other} is no parameter{meant}", param=other)
    return InvalidRequest(f"{name} is required: {_description(hint)}", param=name)


def _integral(value: Any, depth: int = 2) -> Any:
    """``value`` with whole numbers that are written with a point, as 64.0, as the integers that they are.

    Those in arrays are found up to ``depth``: no parameter has numbers further down.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < _MOST_EXACT:
        return int(value)
    if isinstance(value, list) and depth:
        return [_integral(entry, depth - 1) for entry in value]
    return value


def _among(value: Any, values: tuple[Any, ...]) -> bool:
    """Whether ``value`` is one of ``values``, which true and false are not where those are numbers."""
    return any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in values)


@lru_cache
def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Reads what is right as a whole and knows every parameter of it."""
    strict = msgspec.defstruct(kind.__name__, [], bases=(kind,), frozen=True, kw_only=True, forbid_unknown_fields=True)
    return msgspec.json.Decoder(strict)


@lru_cache
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


@lru_cache
def _required(kind: type[msgspec.Struct]) -> list[str]:
    return [field.name for field in msgspec.structs.fields(kind) if field.required]


def read_query(given: Mapping[str, str], kind: type[T], neutral: Mapping[str, tuple[str, ...]]) -> T:
    """Parameters of a URL as ``kind``; as `read` otherwise."""
    hints = _hints(kind)
    values: dict[str, Any] = {}
    for name, text in given.items():
        if name in hints:
            values[name] = convert(name, text, hints[name], strict=False)
        elif name in neutral:
            _require_neutral(name, text, neutral[name])
        else:
            raise InvalidRequest(f"{name} is no parameter{nearest(name, [*hints, *neutral])}", param=name)
    return kind(**values)


def _object(body: bytes) -> dict[str, Any]:
    try:
        raw = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from None
    except UnicodeDecodeError:
        raise InvalidRequest("the body is not valid JSON: it is not UTF-8") from None
    if not isinstance(raw, dict):
        raise InvalidRequest("the body must be a JSON object")
    return raw


def convert(name: str, value: Any, hint: Any, *, strict: bool = True) -> Any:
    """``value`` as the type ``hint``; `InvalidRequest` says what is wrong with what the client calls ``name``.

    Where it is not ``strict``, text may stand for numbers and booleans.
    """
    try:
        return msgspec.convert(value, hint, strict=strict)
    except msgspec.ValidationError as error:
        place = _PLACE.search(str(error))
        if place is None or not place[1]:
            raise InvalidRequest(f"{name} must be {_description(hint)}{_but_not(value)}", param=name) from None
        why = _PLACE.sub("", str(error))
        path = name + place[1]
        raise InvalidRequest(
            f"{path}: {why[:1].lower()}{why[1:]}; {name} must be {_description(hint)}", param=path
        ) from None


def _require_neutral(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if allowed is not ANY and not _among(value, allowed):
        shown = " or ".join(msgspec.json.encode(neutral).decode() for neutral in allowed)
        raise InvalidRequest(f"{name} is not supported: leave it out, or set it to {shown}", param=name)


def _but_not(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return ""
    shown = msgspec.json.encode(value).decode()
    return f", not {shown}" if len(shown) <= _SHOWN else f", not {shown[:_SHOWN]}…"


def _description(hint: Any) -> str:
    """The outermost description in a type that may be optional."""
    if isinstance(hint, msgspec.Meta):
        return hint.description or ""
    return next(filter(None, map(_description, reversed(typing.get_args(hint)))), "")
