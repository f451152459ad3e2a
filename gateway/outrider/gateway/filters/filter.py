"""The interface of a filter, a plug-in of the group ``outrider.filters``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol


class Passed(NamedTuple):
    """What a filter decides in one call.

    Readers get ``text``. ``changes`` names what the filter changed in it. The answer ends behind ``text`` if ``ended``
    says why, in a word.
    """

    text: str = ""
    changes: tuple[str, ...] = ()
    ended: str = ""


class Filter(Protocol):
    """Reads the text of one answer, piece by piece.

    All that a filter passes is a function of its options and of the text: it depends neither on how the text is cut
    into pieces nor on time. A reader who resumes the answer then gets the same text from another gateway.
    """

    @property
    def held(self) -> str:
        """The text that the filter has read and not decided yet."""
        ...

    def feed(self, text: str) -> Passed | Awaitable[Passed]:
        """Reads the next ``text``, at least one character."""
        ...

    def end(self) -> Passed | Awaitable[Passed]:
        """Decides all that is held: the answer has ended."""
        ...


MakeFilter = Callable[[], Filter]
"""Makes the filter of one answer. If it has a coroutine ``close``, a gateway that stops calls that."""

Plugin = Callable[[Mapping[str, Any]], MakeFilter]
"""What an entry point names: takes the filter's options once; raises `ConfigError` for options that do not fit."""
