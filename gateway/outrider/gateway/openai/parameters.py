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

_PLACE = re.compile(r" - at `\$(.*)`$")
_SHOWN = 40


def read(body: bytes, kind: type[T], neutral: Mapping[str, tuple[Any, ...]]) -> T:
    """``body`` as ``kind``, whose fields' `Meta` descriptions say what they may hold; null is as good as absent.

    ``neutral`` lists parameters that are known but not honoured, each with the values that ask for nothing.
    `InvalidRequest` for anything else.
    """
    try:
        whole: T = _decoder(kind).decode(body)
        return whole
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _read_each(_object(body), kind, neutral)


def _read_each(raw: Mapping[str, Any], kind: type[T], neutral: Mapping[str, tuple[Any, ...]]) -> T:
    """As `read`, one parameter after the other: it takes long, and knows what is wrong."""
    hints = _hints(kind)
    values: dict[str, Any] = {}
    for name, value in raw.items():
        if name not in hints and name not in neutral:
            raise InvalidRequest(f"{name} is no parameter{nearest(name, [*hints, *neutral])}", param=name)
        if value is None:
            continue
        if name in hints:
            values[name] = convert(name, value, hints[name])
        else:
            _require_neutral(name, value, neutral[name])
    for name in _required(kind):
        if name not in values:
            raise InvalidRequest(f"{name} is required: {_description(hints[name])}", param=name)
    return kind(**values)


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
    if allowed is not ANY and not any(value == neutral and type(value) is type(neutral) for neutral in allowed):
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
