"""The verifier's own drafters: what each of them has to be told, and for how long steps wait for it."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq

from outrider.models.speculation import Drafter, DraftTree, HiddenDrafter, Opening
from outrider.verifier.sequence import Sequence

OWN = "local:"
"""Begins the sources of trees of the verifier's own drafters."""
_INSTALMENTS = 32


class OwnDrafter:
    """One of them, which costs nothing where it is paused or nobody asks for it.

    Attributes:
        name: of the drafter.
        source: by which its trees are known.
        seeing: it, where it guesses from the target's hidden states.
        paused: whether it is not asked at present.
        waited: seconds for which the step waited for it; None where it was not asked.
        usual: for which steps wait for it.
    """

    def __init__(self, drafter: Drafter) -> None:
        self._drafter, self.name, self.source = drafter, drafter.name, f"{OWN}{drafter.name}"
        self.seeing = drafter if isinstance(drafter, HiddenDrafter) else None
        self.paused = False
        self.waited: float | None = None
        self.usual = self._owed = 0.0
        self._open: set[int] = set()
        self._behind: dict[int, int] = {}

    @property
    def able(self) -> bool:
        """Whether there is anything that it may guess."""
        return bool(self._open) and not self.paused

    def open(self, number: int, opening: Opening) -> None:
        """Starts guessing for a sequence."""
        self._open.add(number)
        self._drafter.open(number, opening)

    def follow(self, number: int, length: int, tokens: list[int]) -> None:
        """Moves on behind ``tokens``, decided after ``length`` others; one that is paused is told when it is asked."""
        if self.paused and self.seeing is None:
            self._behind.setdefault(number, length)
        else:
            self._drafter.commit(number, length, tokens)

    def close(self, sequence: Sequence) -> None:
        """Ends a sequence, behind its last token."""
        number = sequence.number
        self._open.discard(number)
        if (length := self._behind.pop(number, None)) is not None:
            self._drafter.commit(number, length, sequence.tokens[length:])
        self._drafter.close(number)

    def draft(self, sequences: Mapping[int, Sequence]) -> Seq[tuple[int, DraftTree]]:
        """Its guesses; sequences by number."""
        if self._behind:
            for number, length in self._behind.items():
                self._drafter.commit(number, length, sequences[number].tokens[length:])
            self._behind.clear()
        return self._drafter.draft()

    def wait(self, seconds: float, prompts: bool) -> None:
        """Takes in how long a step waited for it, and whether that computed prompts, which is not charged at once."""
        self.waited = seconds
        self.usual += (seconds - self.usual) / 32
        self._owed += seconds if prompts else 0.0

    def owe(self) -> float:
        """This step's share of the seconds for which steps waited that computed prompts."""
        owed = self._owed / _INSTALMENTS
        self._owed -= owed
        return owed
