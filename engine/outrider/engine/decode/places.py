"""Where a step's rows draw. A draw refuses logits, dice and masks that belong to another sequence or place."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING

from outrider.engine.requests.sequence import Sequence
from outrider.kernels.batch import RaggedBatch

if TYPE_CHECKING:
    from outrider.engine.decode.runner import Work


class Misplaced(Exception):
    """What a draw of ``sequence`` was given belongs elsewhere. It ends that request alone."""

    def __init__(self, sequence: Sequence, what: str) -> None:
        super().__init__(f"a draw behind {len(sequence.tokens)} tokens was refused: {what}")
        self.sequence = sequence


def draw_places(works: Seq[Work], batch: RaggedBatch) -> list[list[int]]:
    """How many tokens stand in front of each draw of each work; the dice are those of that position.

    `Misplaced` unless the target computed the draw's row right there, from the sequence's last token.
    """
    return [_places(work, batch, first) if work.draws else [] for work, first in zip(works, batch.starts, strict=True)]


def _places(work: Work, batch: RaggedBatch, first: int) -> list[int]:
    sequence, guesses = work.sequence, work.guesses
    length, end = len(sequence.tokens), first + len(work.tokens)
    if guesses is None or not guesses.tokens:
        places, root, belongs = [length], -1, batch.places[end - 1] == length - 1
    else:
        places, root = [length, *[length + depth for depth in guesses.depths]], 0
        belongs = [place + 1 for place in batch.places[first:end]] == places
    if not belongs or work.tokens[root] != sequence.tokens[-1]:
        raise Misplaced(sequence, "its logits or dice belong elsewhere")
    return places
