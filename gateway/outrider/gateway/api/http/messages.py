"""HTTP messages: JSON bodies of bounded size, and clients that disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import nullcontext
from itertools import accumulate
from typing import Any, TypeVar

import msgspec
from outrider.gateway.admission.body_turns import SMALL, Arrival
from outrider.gateway.admission.reservation import Admission
from outrider.gateway.errors import TimedOut, TooLarge, WrongContentType, WrongEncoding
from outrider.mesh.errors import InvalidRequest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive

DEPTH = 100
"""Most levels of arrays and objects. Later parsers, such as serde's, accept between 128 and a thousand levels."""
PARAMETERS = 256
"""Most members of the outermost object."""
ENTRIES = 50_000
"""Most arrays, objects and members of objects together: reading each takes about a microsecond."""

VALUES = 1_100_000
"""Most values of arrays and members of objects together: as many as the longest prompt has token ids, and some."""
STRINGS = 200_000
"""Most strings, names of members included."""

_SHOWN_NAME = 100
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""Maps opening brackets to +1 and closing brackets to -1, as signed bytes."""
_OTHERS = bytes(byte for byte in range(256) if byte not in b'[]{}:,"')


def require_plain(data: bytes, name: str = "the body") -> None:
    """Raises `InvalidRequest` if ``data`` nests too deep, has too many entries, or is an object with a repeated name.

    Names of inner objects are not checked: that would take longer than parsing. Data that is not JSON passes.
    """
    opened, quotes = data.count(b"[") + data.count(b"{"), data.count(b'"')
    many = opened + data.count(b":") > ENTRIES or data.count(b",") > VALUES or quotes > 2 * STRINGS
    if opened > DEPTH or many:
        _require_shape(_outside_strings(data, name), name)
    if (name_twice := _MEMBER_NAMES.first_duplicate(data, name)) is not None:
        raise InvalidRequest(f"{name_twice[:_SHOWN_NAME]} is given twice: give it once", param=name_twice[:_SHOWN_NAME])


def read_plain(text: str, name: str) -> Any:
    """The JSON in ``text``; raises as `require_plain`, and `InvalidRequest` for a ``text`` that is not JSON."""
    require_plain(text.encode(), name)
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{name} is not valid JSON: {error}", param=name) from None


def _outside_strings(data: bytes, name: str) -> bytes:
    """The brackets, colons and commas outside strings; raises `InvalidRequest` for too many strings."""
    unescaped = data.replace(rb"\\", b"").replace(rb"\"", b"")
    if unescaped.count(b'"') > 2 * STRINGS:
        raise InvalidRequest(f"{name} has more than {STRINGS} strings, the most allowed")
    return b"".join(unescaped.translate(None, _OTHERS).split(b'"')[::2])


def _require_shape(outside: bytes, name: str) -> None:
    """Raises `InvalidRequest` for too many entries or values, or for brackets that nest too deep."""
    steps = outside.translate(_STEPS, b":,")[: 2 * ENTRIES]
    if max(accumulate(memoryview(steps).cast("b")), default=0) > DEPTH:
        raise InvalidRequest(f"{name} nests deeper than {DEPTH} levels of arrays and objects, the most allowed")
    if outside.count(b"[") + outside.count(b"{") + outside.count(b":") > ENTRIES:
        raise InvalidRequest(f"{name} has more than {ENTRIES} arrays, objects and members of objects, the most allowed")
    if outside.count(b",") > VALUES:
        raise InvalidRequest(f"{name} has more than {VALUES} values, the most allowed")


class _Name(str):
    """A member's name."""


class _MemberNames:
    """Reads the names of an object's members, repeated names included, which a dictionary would drop."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._decode = msgspec.json.Decoder(dict[_Name, msgspec.Raw], dec_hook=self._note_name).decode

    def first_duplicate(self, data: bytes, name: str) -> str | None:
        """The first repeated name; None if there is none, or ``data`` is not an object.

        Raises `InvalidRequest` for more than `PARAMETERS` members.
        """
        self._names.clear()
        try:
            members = self._decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            if len(self._names) <= PARAMETERS:
                return None
            raise InvalidRequest(f"{name} has more than {PARAMETERS} parameters, the most allowed") from None
        if len(members) == len(self._names):
            return None
        return next(name for place, name in enumerate(self._names) if name in self._names[:place])

    def _note_name(self, kind: type, name: Any) -> _Name:
        self._names.append(name)
        if len(self._names) > PARAMETERS:
            raise ValueError
        return _Name(name)


_MEMBER_NAMES = _MemberNames()


T = TypeVar("T")
_BODY_S = 60.0
_JSON = "application/json"
_SHOWN = 80
_ON_DISCONNECT = "x-outrider-on-disconnect"


async def read_body(request: Request, limit: int) -> bytes:
    """The bytes of the request's body, unparsed.

    Raises `WrongContentType` unless it is said to be JSON, `WrongEncoding` if it is compressed, `TooLarge` for more
    than ``limit`` bytes, `TimedOut` if it takes too long to arrive, `ClientDisconnect` if it never arrives whole,
    `InvalidRequest` as `require_plain`, and `Overloaded` as `Arrival`. The caller parses the bytes before it awaits
    anything.
    """
    _require_json(request)
    _require_plain_coding(request)
    admission: Admission | None = getattr(request.state, "admission", None)
    small = int(request.headers.get("content-length", SMALL + 1)) <= SMALL
    with nullcontext() if small or admission is None else admission.arriving() as arrival:
        body = await _read(request, limit, arrival)
        if arrival is not None:
            await arrival.turn()
    require_plain(body)
    return body


async def _read(request: Request, limit: int, arrival: Arrival | None) -> bytes:
    too_large = TooLarge(f"the body is larger than {limit} bytes")
    if int(request.headers.get("content-length", 0)) > limit:
        raise too_large
    body, more, idle_s = bytearray(), True, getattr(request.state, "body_idle_s", _BODY_S)
    loop = asyncio.get_running_loop()
    end = loop.time() + _BODY_S
    try:
        async with asyncio.timeout(min(idle_s, _BODY_S)) as timer:
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > limit:
                    raise too_large
                if arrival is not None:
                    arrival.grow(len(body))
                timer.reschedule(min(loop.time() + idle_s, end))
    except TimeoutError:
        raise TimedOut(f"the body did not arrive within {_BODY_S:g} s, or paused for {idle_s:g} s") from None
    return bytes(body)


def _require_json(request: Request) -> None:
    """Raises `WrongContentType` unless the body is JSON: web pages may send other types to any server unasked."""
    headers = request.headers
    types = headers.getlist("content-type")
    if not types and "transfer-encoding" not in headers and headers.get("content-length", "0") == "0":
        return
    kind = types[0].partition(";")[0].strip().lower() if len(types) == 1 else ""
    if kind != _JSON and not (kind.startswith("application/") and kind.endswith("+json")):
        shown = f"not {', '.join(types)[:_SHOWN]}" if any(types) else "which is missing"
        raise WrongContentType(
            f"send the body as JSON with the header Content-Type: application/json (curl --json), {shown}"
        )


def _require_plain_coding(request: Request) -> None:
    """Raises `WrongEncoding` for a body in a coding: none is undone here."""
    for name, known in (("content-encoding", "identity"), ("transfer-encoding", "chunked")):
        codings = [coding.strip().lower() for value in request.headers.getlist(name) for coding in value.split(",")]
        if wrong := [coding for coding in codings if coding not in ("", known)]:
            shown = ", ".join(wrong)[:_SHOWN]
            raise WrongEncoding(f"send the body uncompressed: {name} is {shown}, which is not decoded here")


def lingers_after_disconnect(request: Request) -> bool:
    """Whether the generation lingers after its client has left; raises `InvalidRequest` for an unknown header value."""
    value = request.headers.get(_ON_DISCONNECT, "cancel")
    if value not in ("cancel", "continue"):
        raise InvalidRequest(f"{_ON_DISCONNECT} must be cancel or continue, not {value[:40]!r}", param=_ON_DISCONNECT)
    return value == "continue"


def json_response(
    value: msgspec.Struct | dict[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """``value`` as a JSON answer."""
    return Response(msgspec.json.encode(value), status, dict(headers or {}), _JSON)


async def until_disconnected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``; if the client disconnects first, cancels ``work`` and raises `ClientDisconnect`.

    The request's body must have been read: nothing else may wait on ``receive``.
    """
    worker = asyncio.current_task()
    assert worker is not None
    watcher = asyncio.create_task(_disconnected(receive, worker))
    try:
        return await work
    except asyncio.CancelledError:
        if watcher.done() and worker.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        watcher.cancel()


async def _disconnected(receive: Receive, worker: asyncio.Task[Any]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    worker.cancel()
