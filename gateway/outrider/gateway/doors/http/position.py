"""Where in a stream a client stands: what ``id`` of an event says, and ``Last-Event-ID`` when it comes back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum

import msgspec
from outrider.mesh.errors import InvalidRequest

_PLACE = r"-?\d{1,10}e?"
_TEXT = re.compile(
    rf"(?P<request>[A-Za-z0-9_-]+):(?:o(?P<openings>\d{{1,4}})|(?P<places>{_PLACE}(?:\.{_PLACE})*)|(?P<tail>usage|done))"
)


class Tail(IntEnum):
    """What follows the last tokens."""

    NONE = 0
    USAGE = 1
    DONE = 2


class Position(msgspec.Struct):
    """What of a stream has been sent: chunks that open it, tokens of each choice, and what follows them.

    ``places`` are indices of the next tokens, ``ended`` says which choices' ends were told. Behind the
    request's id and a colon is written ``o1`` (one opening chunk of several), ``12`` (the next token has index 12),
    ``12e`` (and there is none), ``12.9e`` (two choices), ``usage`` or ``done``.
    """

    places: list[int]
    ended: list[bool]
    openings: int = 0
    tail: Tail = Tail.NONE

    @classmethod
    def start(cls, places: Sequence[int]) -> Position:
        """Before anything of a stream whose choices' tokens begin at ``places``."""
        return cls([*places], [False] * len(places))

    def read(self, text: str, request: str, openings: int) -> Position:
        """What the id of an event of ``request`` says, where this is its stream's start and ``openings`` open it.

        `InvalidRequest` for anything else.
        """
        found = _TEXT.fullmatch(text)
        if found is None or found["request"] != request:
            raise InvalidRequest(f"Last-Event-ID is no id of an event of the stream {request}", param="last_event_id")
        if found["tail"] is not None:
            return Position(self.places, [True] * len(self.ended), openings, Tail[found["tail"].upper()])
        if found["openings"] is not None:
            return Position(self.places, self.ended, int(found["openings"]))
        entries = found["places"].split(".")
        if len(entries) != len(self.places):
            raise InvalidRequest(f"Last-Event-ID must tell of {len(self.places)} choices", param="last_event_id")
        ended = [entry.endswith("e") for entry in entries]
        return Position([int(entry.removesuffix("e")) for entry in entries], ended, openings)

    def text(self, request: str, openings: int) -> str:
        """The id of an event of ``request`` after which a client stands here; its stream opens with ``openings``."""
        if self.tail is not Tail.NONE:
            return f"{request}:{self.tail.name.lower()}"
        if self.openings < openings:
            return f"{request}:o{self.openings}"
        places = [f"{place}e" if end else str(place) for place, end in zip(self.places, self.ended, strict=True)]
        return f"{request}:{'.'.join(places)}"
