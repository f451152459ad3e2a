"""Walking the decided tokens through the tree of guesses, and the race rule, by which the target's draws decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from outrider.models.speculation.acceptance import AcceptanceError, VerifiedTree


class Accepted(NamedTuple):
    """What a verified tree yields.

    Attributes:
        rows: the row of the sequence's end (0) and of each accepted guess, in order: their keys and values are kept.
        tokens: the tokens that the target decided, one more than there are accepted guesses.
    """

    rows: list[int]
    tokens: list[int]


class Race:
    """The target's own draws decide, whoever guessed what: the same tokens as without guesses."""

    name = "race"
    lossy = False
    needs_proposals = False
    replacement = False

    def __init__(self, options: Mapping[str, Any]) -> None:
        if options:
            raise AcceptanceError(f"the race rule takes no options, not {', '.join(sorted(options))}")

    def decide(self, verified: VerifiedTree) -> list[int]:
        """What was drawn."""
        return verified.drawn


def walk(guesses: Sequence[int], parents: Sequence[int], drawn: Sequence[int]) -> Accepted:
    """Follows the decided tokens from the sequence's end for as long as someone guessed them.

    Row 0 of a verified tree is the sequence's last token; row ``i + 1`` is guess ``i``. Where the target's draws
    decide, what comes out is what one draw after another would have emitted, whatever the guesses are. Of siblings
    with the same token the eldest is followed.

    Args:
        guesses: guessed tokens.
        parents: index of each guess's parent, which stands before it; -1 for the sequence's end.
        drawn: the token that is decided at each row, one more than there are guesses.
    """
    rows, tokens, at = [0], [drawn[0]], -1
    for node, (parent, token) in enumerate(zip(parents, guesses, strict=True)):
        if parent == at and token == tokens[-1]:
            at = node
            rows.append(node + 1)
            tokens.append(drawn[node + 1])
    return Accepted(rows, tokens)
