"""Finds matches of regular expressions in a text that comes piece by piece, and what may still become a match.

Expressions are those of RE2: whatever the expression and the text, a search takes time linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import re2

_TOKEN = re.compile(
    r"""
      (?P<refused>\\[AzQEC]|[\^$]|\(\?(?!:|[is]+:|[is]+\)))
    | (?P<edge>\\[bB])
    | (?P<structure>\(\?[is]*:|\(\?[is]+\)|[()|?*+]|\{\d+(?:,\d*)?\})
    | (?P<atom>\\x\{[0-9A-Fa-f]+\}|\\x[0-9A-Fa-f]{2}|\\[pP](?:\{\^?\w+\}|\w)|\\.
             |\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_RULES = "an expression may have no ^, $, \\A, \\z, \\Q, \\C, look-around or named group"


class Found(NamedTuple):
    """A match: its place in the text, and the number of its expression."""

    start: int
    end: int
    which: int


class Matcher:
    """Several regular expressions; of matches that begin at one place, the longest counts.

    Of what could still become a match with more than ``longest`` characters, the first ``longest`` count as one. Raises
    `ValueError` for an expression that RE2 or this module refuses, or that matches the empty text.
    """

    def __init__(self, expressions: Sequence[str], longest: int) -> None:
        self._longest = longest
        parsed = [list(_tokens(expression)) for expression in expressions]
        self._whole = _compile("|".join(_named(which, _join(tokens)) for which, tokens in enumerate(parsed)))
        beginnings = "|".join(_named(which, _beginning(tokens)) for which, tokens in enumerate(parsed))
        self._open = _compile(rf"(?:{beginnings})\z")
        for expression, tokens in zip(expressions, parsed, strict=True):
            if _compile(f"(?:{_join(tokens)})").fullmatch(""):
                raise ValueError(f"the expression {expression!r} matches the empty text")

    def decide(self, text: str, start: int, *, final: bool) -> tuple[list[Found], int]:
        """The matches from ``start`` on that no further text can change, and the place up to which all is decided.

        Unless the text is ``final``, what could become part of a match stays undecided. The text before ``start`` only
        counts for the edges of words.
        """
        found: list[Found] = []
        while True:
            undecided = None if final else self._open.search(text, start)
            place = len(text) if undecided is None else undecided.start()
            match = self._whole.search(text, start)
            if match is not None and match.start() < place:
                start = match.end()
            elif undecided is not None and len(text) - place > self._longest:
                match, start = undecided, place + self._longest
            else:
                return found, place
            found.append(Found(match.start(), start, int(match.lastgroup[1:])))


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    """The parts of an expression, each with its kind."""
    for match in _TOKEN.finditer(expression):
        kind = match.lastgroup or ""
        if kind == "refused":
            raise ValueError(f"the expression {expression!r} has {match[0]!r}: {_RULES}")
        yield kind, match[0]


def _named(which: int, expression: str) -> str:
    return f"(?P<p{which}>{expression})"


def _join(tokens: list[tuple[str, str]]) -> str:
    return "".join("(?:" if part == "(" else part for _, part in tokens)


def _beginning(tokens: list[tuple[str, str]]) -> str:
    r"""An expression that matches, in front of ``\z``, each beginning of what the expression matches.

    Each atom may be missing where the text ends. Then all behind that atom are missing too.
    """
    atoms = ((kind, rf"(?:{part}|\z)" if kind in ("atom", "edge") else part) for kind, part in tokens)
    return _join(list(atoms))


def _compile(expression: str) -> Any:
    options = re2.Options()
    options.longest_match, options.log_errors = True, False
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        detail = error.args[0].decode() if isinstance(error.args[0], bytes) else error
        raise ValueError(f"RE2 refuses the expression: {detail}") from None
