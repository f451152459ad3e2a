"""What an answer may, or has to, call."""

from __future__ import annotations

import msgspec


class Callee(msgspec.Struct, frozen=True):
    """A function; ``schema`` is the JSON Schema of its arguments."""

    name: str
    schema: str


class Calling(msgspec.Struct, frozen=True):
    """Calls of one or several of ``callees``, at most ``most`` where the model writes more than one.

    Where ``may_talk``, the answer may be text as well, or instead. ``param`` is what the client calls all this.
    """

    callees: tuple[Callee, ...]
    may_talk: bool
    most: int
    param: str

    @property
    def names(self) -> tuple[str, ...]:
        """Whom the answer may call."""
        return tuple(callee.name for callee in self.callees)

    def bare(self, text: object) -> bool:
        """Whether text may be calls without the format's marks; ``text`` is what text has to be, None for anything."""
        return self.may_talk and text is None
