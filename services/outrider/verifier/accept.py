"""The race rule: walk the target's own draws through the tree of guesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a verified tree yields.

    Attributes:
        rows: the row of the sequence's end (0) and of each accepted guess, in order: their keys and values are kept.
        tokens: the tokens that the target decided, one more than there are accepted guesses.
    """

    rows: list[int]
    tokens: list[int]


def walk(guesses: Sequence[int], parents: Sequence[int], drawn: Sequence[int]) -> Accepted:
    """Follows the target from the sequence's end for as long as someone guessed what it drew.

    Row 0 of a verified tree is the sequence's last token; row ``i + 1`` is guess ``i``. What comes out is what one
    draw after another would have emitted, whatever the guesses are.

    Args:
        guesses: guessed tokens.
        parents: index of each guess's parent, -1 for the sequence's end.
        drawn: the token that the target draws at each row, one more than there are guesses.
    """
    named = enumerate(zip(parents, guesses, strict=True), start=1)
    children = {(parent + 1, token): row for row, (parent, token) in named}
    rows, tokens = [0], [drawn[0]]
    while (row := children.get((rows[-1], tokens[-1]))) is not None:
        rows.append(row)
        tokens.append(drawn[row])
    return Accepted(rows, tokens)
