"""The functions that an answer may, or has to, call."""

from __future__ import annotations

import msgspec


class CallableFunction(msgspec.Struct, frozen=True):
    """A function that an answer may call; ``schema`` is the JSON Schema of its arguments, for the compiler.

    ``unenforced`` names the places of the client's schema that ``schema`` leaves out.
    """

    name: str
    schema: str
    unenforced: tuple[str, ...] = ()


class CallRules(msgspec.Struct, frozen=True):
    """An answer calls ``functions``, at most ``most`` times.

    If it ``may_talk``, it may also be text, or text before calls. ``param`` is the client's parameter, for messages.
    """

    functions: tuple[CallableFunction, ...]
    may_talk: bool
    most: int
    param: str

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the functions."""
        return tuple(function.name for function in self.functions)

    def bare(self, text: object) -> bool:
        """Whether calls without the format's marks are read as calls; ``text`` is the structure of text, or None."""
        return self.may_talk and text is None
