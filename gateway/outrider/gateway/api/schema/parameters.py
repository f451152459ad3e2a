"""Reads the parameters of a request; a refusal names the parameter, its value and the allowed values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from outrider.mesh.config.fields import nearest
from outrider.mesh.errors import InvalidRequest
from outrider.wire.bounds import INT32, OutOfBounds, checked, describe, hints_of

T = TypeVar("T", bound=msgspec.Struct)

ANY: tuple[Any, ...] = ()
"""Neutral values of a parameter that has no effect with any value."""

ABSENT: dict[str, tuple[Any, ...]] = {
    "max_tokens": (-1,),
    "max_completion_tokens": (-1,),
    "max_output_tokens": (-1,),
    "top_k": (-1,),
    "thinking_token_budget": (-1,),
    "stop": ("",),
    "suffix": ("",),
    "grammar": ("",),
    "chat_template": ("",),
}
"""Values with which clients of other servers leave a parameter out. Null does so for every parameter."""

ALIASES = {"n_predict": "max_tokens", "num_predict": "max_tokens", "repeat_penalty": "repetition_penalty"}
"""Names that llama-server and Ollama have for parameters, in bodies with those parameters."""
UNBOUNDED = INT32
"""``max_tokens`` of -1 or -2 under its names in ``ALIASES``: as many as the context has room for."""


class UnsupportedParameters(msgspec.Struct, frozen=True):
    """Known parameters that are not supported, each with its neutral values.

    Another value of an ``altering`` parameter would change the answer if it were supported; another value of an
    ``idle`` parameter would not. ``instead`` is what may be given in the place of a parameter.
    """

    altering: Mapping[str, tuple[Any, ...]] = {}
    idle: Mapping[str, tuple[Any, ...]] = {}
    instead: Mapping[str, str] = {}

    def substitute(self, name: str, names: Collection[str]) -> str:
        """What may be given in the place of ``name``, where it is no name or one of ``names``; else empty."""
        other = self.instead.get(name, "")
        return other if other in names or " " in other else ""


_NONE_UNSUPPORTED = UnsupportedParameters()
_MOST_EXACT = 1 << 63
_MOST_FLOATS = 4096


def read(
    body: bytes | dict[str, Any],
    kind: type[T],
    unsupported: UnsupportedParameters = _NONE_UNSUPPORTED,
    ignored: list[str] | None = None,
) -> T:
    """``body``, as JSON or decoded, as a ``kind``. A parameter that is null counts as absent.

    ``ignored`` receives the names of parameters without effect; if it is None, such parameters are refused. Raises
    `InvalidRequest`, whose message quotes the `Meta` description of the field.
    """
    try:
        struct: T = _read_strictly(body, kind)
        return struct
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _read_each(body if isinstance(body, dict) else read_object(body), kind, unsupported, ignored)


def _read_each(
    raw: Mapping[str, Any], kind: type[T], unsupported: UnsupportedParameters, ignored: list[str] | None
) -> T:
    """As `read`, one parameter at a time: this is slow, but finds the parameter that is wrong."""
    hints = hints_of(kind)
    values: dict[str, Any] = {}
    given: dict[str, str] = {}
    for name, value in raw.items():
        own = other if (other := ALIASES.get(name)) in hints else name
        if own not in hints:
            _handle_unsupported(name, value, [*hints], unsupported, ignored)
        elif value is not None and not _is_one_of(value := _integral(value), ABSENT.get(name, ())):
            unbounded = own != name and own == "max_tokens" and _is_one_of(value, (-1, -2))
            value = UNBOUNDED if unbounded else convert(name, value, hints[own])
            if values.setdefault(own, value) != value:
                raise InvalidRequest(f"{given[own]} and {name} differ: give one of them", param=name)
            given[own] = name
    for name in _required(kind):
        if name not in values:
            raise _missing(name, hints[name], ignored)
    return kind(**values)


def _handle_unsupported(
    name: str, value: Any, names: list[str], unsupported: UnsupportedParameters, ignored: list[str] | None
) -> None:
    """Notes or refuses a parameter that is not supported."""
    altering, idle = unsupported.altering.get(name), unsupported.idle.get(name)
    if ignored is None and altering is None and idle is None:
        names += [*unsupported.altering, *unsupported.idle]
        raise InvalidRequest(f"{name} is no parameter{nearest(name, names)}", param=name)
    if value is None:
        return
    if altering is not None:
        _require_neutral(name, value, altering, unsupported.substitute(name, names))
    elif ignored is None:
        _require_neutral(name, value, idle or ())
    elif not _is_one_of(value, idle or ()):
        ignored.append(name)


def _missing(name: str, hint: Any, ignored: list[str] | None) -> InvalidRequest:
    """The error for the missing parameter ``name``; if an ignored name resembles it, the error names that one."""
    for other in ignored or ():
        if suggestion := nearest(other, [name]):
            return InvalidRequest(f"{other} is no parameter{suggestion}", param=other)
    return InvalidRequest(f"{name} is required: {describe(hint)}", param=name)


def _integral(value: Any, depth: int = 2) -> Any:
    """``value`` with whole floats, such as 64.0, as integers; also those in arrays, down to ``depth`` levels.

    No parameter has numbers further down. Longer arrays than `_MOST_FLOATS` stay as they are.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < _MOST_EXACT:
        return int(value)
    if isinstance(value, list) and depth and len(value) <= _MOST_FLOATS:
        return [_integral(entry, depth - 1) for entry in value]
    return value


def _is_one_of(value: Any, values: tuple[Any, ...]) -> bool:
    """Whether ``value`` is one of ``values``; a boolean does not equal a number."""
    return any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in values)


def _read_strictly(body: bytes | dict[str, Any], kind: type[msgspec.Struct]) -> Any:
    """``body`` as ``kind``; raises a msgspec error if any parameter is unknown or wrong."""
    strict, decoder = _strict_kind(kind)
    return msgspec.convert(body, strict, str_keys=True) if isinstance(body, dict) else decoder.decode(body)


@lru_cache
def _strict_kind(kind: type[msgspec.Struct]) -> tuple[type[msgspec.Struct], msgspec.json.Decoder[Any]]:
    strict = msgspec.defstruct(kind.__name__, [], bases=(kind,), frozen=True, kw_only=True, forbid_unknown_fields=True)
    return strict, msgspec.json.Decoder(strict)


@lru_cache
def _required(kind: type[msgspec.Struct]) -> list[str]:
    return [field.name for field in msgspec.structs.fields(kind) if field.required]


def read_query(query: Mapping[str, str], kind: type[T]) -> T:
    """The parameters of a URL as a ``kind``; raises `InvalidRequest`."""
    hints = hints_of(kind)
    values: dict[str, Any] = {}
    for name, text in query.items():
        if name not in hints:
            raise InvalidRequest(f"{name} is no parameter{nearest(name, [*hints])}", param=name)
        values[name] = convert(name, text, hints[name], strict=False)
    return kind(**values)


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object in ``body``; raises `InvalidRequest` if there is none."""
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
    """``value`` as the type ``hint``; raises `InvalidRequest`, which calls the parameter ``name``.

    Unless ``strict``, strings are converted to numbers and booleans.
    """
    try:
        return checked(name, value, hint, strict=strict)
    except OutOfBounds as error:
        raise InvalidRequest(str(error), param=error.param) from None


def _require_neutral(name: str, value: Any, allowed: tuple[Any, ...], instead: str = "") -> None:
    if allowed is not ANY and not _is_one_of(value, allowed):
        shown = " or ".join(msgspec.json.encode(neutral).decode() for neutral in allowed)
        otherwise = f", set it to {shown}, or give {instead}" if instead else f", or set it to {shown}"
        raise InvalidRequest(f"{name} is not supported: leave it out{otherwise}", param=name)
