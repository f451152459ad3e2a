"""The walk of decided tokens through a tree of guesses, and the race rule: the target's draws decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.engine.speculation.acceptance.rule import AcceptanceError, VerifiedTree


@dataclass(slots=True)
class AcceptedPath:
    """The accepted rows and decided tokens of a verified tree.

    Attributes:
        rows: row 0 (the sequence's last token) and the row of each accepted guess, ascending; their keys and values
            are kept.
        tokens: tokens that the target decided, one more than accepted guesses.
    """

    rows: list[int]
    tokens: list[int]


class Race:
    """Decides by the target's own draws: the tokens are the same as without guesses."""

    name = "race"
    lossy = False
    needs_proposals = False
    replacement = False

    def __init__(self, options: Mapping[str, Any]) -> None:
        if options:
            raise AcceptanceError(f"the race rule takes no options, not {', '.join(sorted(options))}")

    def decide(self, verified: VerifiedTree) -> list[int]:
        """The target's draws."""
        return verified.drawn


def walk(guesses: Sequence[int], parents: Sequence[int], drawn: Sequence[int]) -> AcceptedPath:
    """Follows the decided tokens from the sequence's end as far as the tree guessed them.

    Row 0 of a verified tree is the sequence's last token; row ``i + 1`` is guess ``i``. Where the target's draws
    decide, the result equals plain decoding for any guesses. Of siblings with the same token the first is followed.

    Args:
        guesses: guessed tokens.
        parents: index of each guess's parent, which comes before the guess; -1 for the sequence's end.
        drawn: the token decided at each row, one more than guesses.
    """
    rows, tokens, at = [0], [drawn[0]], -1
    for node, (parent, token) in enumerate(zip(parents, guesses, strict=True)):
        if parent == at and token == tokens[-1]:
            at = node
            rows.append(node + 1)
            tokens.append(drawn[node + 1])
    return AcceptedPath(rows, tokens)
