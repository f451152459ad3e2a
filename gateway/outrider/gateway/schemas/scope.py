"""What holds for one value so far."""

from __future__ import annotations

import re
from typing import Any

from outrider.gateway.schemas.parts import alternatives

_MOST_ALTERNATIVES = 64
_HEAD = re.compile(r"\^(\w)(?![*?{])[^|]*")
"""A pattern for names that begin with one letter."""


class Scope:
    """What holds for one value so far.

    Attributes:
        ways: how many alternatives it has.
        shared: whether schemas of other places may name properties of it too.
        crowded: whether schemas of this place may, beside an alternative.
        branch: whether this is one of several alternatives.
    """

    def __init__(self, ways: int = 1, patterns: tuple[str, ...] = (), *, shared: bool = False) -> None:
        self.ways, self.shared, self._patterns = ways, shared, patterns
        self.crowded = self.branch = False

    def fork(self, *, beside: bool = True) -> Scope:
        """The scope of one of several alternatives; ``beside`` says that it is combined with another of them."""
        scope = Scope(self.ways, self._patterns, shared=self.shared or self.crowded or beside)
        scope.branch = True
        return scope

    def take(self, schema: Any) -> bool:
        """Whether there is room for the alternatives of ``schema``, which then count."""
        ways = self.ways * alternatives(schema)
        if ways > _MOST_ALTERNATIVES:
            return False
        self.ways = ways
        return True

    def take_pattern(self, pattern: str) -> bool:
        """Whether no name fits ``pattern``, of properties, and an earlier pattern too, as the compiler demands."""
        patterns = {*self._patterns, pattern}
        heads = {head[1] for each in patterns if (head := _HEAD.fullmatch(each))}
        if len(patterns) > 1 and len(heads) < len(patterns):
            return False
        self._patterns = tuple(patterns)
        return True
