"""Server-sent events (HTML standard, 9.2), and positions in a stream: the ``id`` of each event."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import IntEnum

import msgspec
from outrider.mesh.errors import InvalidRequest

_PLACE = r"-?\d{1,10}e?"
_TEXT = re.compile(
    rf"(?P<request>[A-Za-z0-9_-]+):(?:o(?P<openings>\d{{1,4}})|(?P<places>{_PLACE}(?:\.{_PLACE})*)|(?P<tail>usage|done))"
)


class Tail(IntEnum):
    """The last event so far behind the last tokens."""

    NONE = 0
    USAGE = 1
    DONE = 2


class Position(msgspec.Struct):
    """The part of a stream that has been sent: opening chunks, tokens of each choice, and the tail.

    ``places`` holds the index of each choice's next token, ``ended`` whether each choice's end has been sent. In text,
    the request's id and a colon come first, and then one of ``o1`` (one opening chunk has been sent), ``12`` (the next
    token has index 12), ``12e`` (the choice ended before index 12), ``12.9e`` (two choices), ``usage`` and ``done``.
    """

    places: list[int]
    ended: list[bool]
    openings: int = 0
    tail: Tail = Tail.NONE

    @classmethod
    def start(cls, places: Sequence[int]) -> Position:
        """The start of a stream whose choices begin at the token indices ``places``."""
        return cls([*places], [False] * len(places))

    def read(self, text: str, request: str, openings: int) -> Position:
        """The position in ``text``, the id of an event of ``request``; this position must be the start of the stream.

        The stream has ``openings`` opening chunks. Raises `InvalidRequest` if ``text`` is not such an id.
        """
        match = _TEXT.fullmatch(text)
        if match is None or match["request"] != request:
            raise InvalidRequest(f"Last-Event-ID is no id of an event of the stream {request}", param="last_event_id")
        if match["tail"] is not None:
            return Position(self.places, [True] * len(self.ended), openings, Tail[match["tail"].upper()])
        if match["openings"] is not None:
            return Position(self.places, self.ended, int(match["openings"]))
        entries = match["places"].split(".")
        if len(entries) != len(self.places):
            raise InvalidRequest(
                f"Last-Event-ID must have a position for each of the {len(self.places)} choices", param="last_event_id"
            )
        ended = [entry.endswith("e") for entry in entries]
        return Position([int(entry.removesuffix("e")) for entry in entries], ended, openings)

    def text(self, request: str, openings: int) -> str:
        """This position as the id of an event of ``request``, whose stream has ``openings`` opening chunks."""
        if self.tail is not Tail.NONE:
            return f"{request}:{self.tail.name.lower()}"
        if self.openings < openings:
            return f"{request}:o{self.openings}"
        places = [f"{place}e" if end else str(place) for place, end in zip(self.places, self.ended, strict=True)]
        return f"{request}:{'.'.join(places)}"


_LINE_ENDS = tuple((end.encode(), b"\\u%04x" % ord(end)) for end in "\x85\u2028\u2029")
"""Characters that end a line for some clients, though not in the standard."""
_encode = msgspec.json.Encoder().encode
_MARK = "\x00outrider\x00"
"""A text that no other member of an event holds."""


class Template:
    """Events that differ in one text: ``make`` gives the value of the event of a text."""

    def __init__(self, make: Callable[[str], msgspec.Struct]) -> None:
        mark = _data(_MARK)
        self._head, _, self._tail = _data(make(_MARK)).partition(mark)

    def event(self, text: str, id_: str) -> bytes:
        """The event of ``text``, as `event`."""
        return b"data: %b%b%b\nid: %b\n\n" % (self._head, _data(text), self._tail, id_.encode())


def event(value: msgspec.Struct, id_: str) -> bytes:
    """``value`` as one event of JSON data; ``id_`` is its position, which a client sends when it resumes."""
    return b"data: %b\nid: %b\n\n" % (_data(value), id_.encode())


def typed_event(value: msgspec.Struct) -> bytes:
    """``value`` as one event of JSON data; the value's tag is the event's type."""
    return b"event: %b\ndata: %b\n\n" % (str(value.__struct_config__.tag).encode(), _data(value))


def done(id_: str) -> bytes:
    """The event that ends a stream."""
    return b"data: [DONE]\nid: %b\n\n" % id_.encode()


def with_retry(data: bytes, milliseconds: int) -> bytes:
    """``data``, one event, with the time that the client is to wait before it reconnects."""
    return b"%bretry: %d\n\n" % (data[:-1], milliseconds)


def _data(value: msgspec.Struct | str) -> bytes:
    data = _encode(value)
    for raw, escaped in _LINE_ENDS:
        if raw in data:
            data = data.replace(raw, escaped)
    return data
