"""Reading a request's parameters so that a refusal names the parameter, what it holds and what it may hold."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from outrider.mesh.config.fields import nearest
from outrider.mesh.errors import InvalidRequest
from outrider.wire.bounds import OutOfBounds, checked, describe, hints_of

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


def read(
    body: bytes | dict[str, Any], kind: type[T], unhonoured: Unhonoured = _NOTHING, ignored: list[str] | None = None
) -> T:
    """``body``, JSON or what JSON holds, as ``kind``, whose fields' `Meta` descriptions say what they may hold.

    Null is as good as absent.

    Names of parameters that have no effect go into ``ignored``; where that is None, such parameters are refused.
    `InvalidRequest` for anything else.
    """
    try:
        whole: T = _whole(body, kind)
        return whole
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _read_each(body if isinstance(body, dict) else read_object(body), kind, unhonoured, ignored)


def _read_each(raw: Mapping[str, Any], kind: type[T], unhonoured: Unhonoured, ignored: list[str] | None) -> T:
    """As `read`, one parameter after the other: it takes long, and knows what is wrong."""
    hints = hints_of(kind)
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
    return InvalidRequest(f"{name} is required: {describe(hint)}", param=name)


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


def _whole(body: bytes | dict[str, Any], kind: type[msgspec.Struct]) -> Any:
    """What is right as a whole, of which every parameter is known."""
    strict, decoder = _strict(kind)
    return msgspec.convert(body, strict, str_keys=True) if isinstance(body, dict) else decoder.decode(body)


@lru_cache
def _strict(kind: type[msgspec.Struct]) -> tuple[type[msgspec.Struct], msgspec.json.Decoder[Any]]:
    made = msgspec.defstruct(kind.__name__, [], bases=(kind,), frozen=True, kw_only=True, forbid_unknown_fields=True)
    return made, msgspec.json.Decoder(made)


@lru_cache
def _required(kind: type[msgspec.Struct]) -> list[str]:
    return [field.name for field in msgspec.structs.fields(kind) if field.required]


def read_query(given: Mapping[str, str], kind: type[T], neutral: Mapping[str, tuple[str, ...]]) -> T:
    """Parameters of a URL as ``kind``; as `read` otherwise."""
    hints = hints_of(kind)
    values: dict[str, Any] = {}
    for name, text in given.items():
        if name in hints:
            values[name] = convert(name, text, hints[name], strict=False)
        elif name in neutral:
            _require_neutral(name, text, neutral[name])
        else:
            raise InvalidRequest(f"{name} is no parameter{nearest(name, [*hints, *neutral])}", param=name)
    return kind(**values)


def read_object(body: bytes) -> dict[str, Any]:
    """The object in ``body``; `InvalidRequest` where there is none."""
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
        return checked(name, value, hint, strict=strict)
    except OutOfBounds as error:
        raise InvalidRequest(str(error), param=error.param) from None


def _require_neutral(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if allowed is not ANY and not _among(value, allowed):
        shown = " or ".join(msgspec.json.encode(neutral).decode() for neutral in allowed)
        raise InvalidRequest(f"{name} is not supported: leave it out, or set it to {shown}", param=name)
