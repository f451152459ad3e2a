"""The verifier's own drafters: what each of them has to be told, and for how long steps wait for it."""

from __future__ import annotations

from collections.abc import Mapping, Set
from collections.abc import Sequence as Seq

from outrider.models.speculation import (
    Drafter,
    DraftTree,
    HiddenDrafter,
    Opening,
    PricedDrafter,
    ReadingDrafter,
    RestingDrafter,
)
from outrider.verifier.requests.sequence import Sequence
from outrider.verifier.speculation.asking import READING, Asking

OWN = "local:"
"""Begins the sources of trees of the verifier's own drafters."""
_INSTALMENTS = 32


class OwnDrafter:
    """One of them, which costs nothing where it is paused or nobody asks for it.

    Attributes:
        name: of the drafter.
        source: by which its trees are known.
        seeing: it, where it guesses from the target's hidden states.
        priced: whether it is told what guesses have to bring.
        asking: for which sequences it is asked, where steps wait for it; None where it is asked for all.
        paused: whether it is not asked at present.
        waited: seconds for which the step waited for it; None where it was not asked.
        usual: for which steps wait for it.
        sequences: those it may guess for.
        alone: seconds that the step would take without it.
    """

    def __init__(self, drafter: Drafter, asking: Asking) -> None:
        self._drafter, self.name, self.source = drafter, drafter.name, f"{OWN}{drafter.name}"
        self.seeing = drafter if isinstance(drafter, HiddenDrafter) else None
        self._resting = drafter if isinstance(drafter, RestingDrafter) else None
        self.priced = isinstance(drafter, PricedDrafter)
        self.asking = asking if self.priced and self._resting is not None else None
        self.paused = False
        self.waited: float | None = None
        self.usual = self._owed = 0.0
        self.sequences: set[int] = set()
        self._wanted: Set[int] = frozenset()
        self.alone, self._reads = 0.0, False
        self._reading, self._reading_s = 0, 0.0
        self._read: dict[int, int] = {}
        self._behind: dict[int, int] = {}

    @property
    def able(self) -> bool:
        """Whether there is anything that it may guess."""
        return bool(self.sequences) and not self.paused

    def open(self, number: int, opening: Opening) -> None:
        """Starts guessing for a sequence."""
        self.sequences.add(number)
        self._drafter.open(number, opening)

    def follow(self, number: int, length: int, tokens: list[int]) -> None:
        """Moves on behind ``tokens``, decided after ``length`` others; one that is paused is told when it is asked."""
        if number in self._behind or (self.paused and self.seeing is None):
            self._behind.setdefault(number, length)
        else:
            self._drafter.commit(number, length, tokens)

    def close(self, sequence: Sequence) -> None:
        """Ends a sequence, behind its last token."""
        number = sequence.number
        self.sequences.discard(number)
        self._read.pop(number, None)
        if self.asking is not None:
            self.asking.close(number)
        if (length := self._behind.pop(number, None)) is not None:
            self._drafter.commit(number, length, sequence.tokens[length:])
        self._drafter.close(number)

    def unread(self, sequence: Sequence) -> int:
        """Tokens of a sequence that it has not been asked to read."""
        return len(sequence.tokens) - self._read.get(sequence.number, 0)

    def draft(self, running: Mapping[int, Sequence], wanted: Set[int]) -> Seq[tuple[int, DraftTree]]:
        """Its guesses for the sequences ``wanted``; those ``running`` by number."""
        for number, length in self._behind.items():
            self._drafter.commit(number, length, running[number].tokens[length:])
        self._behind.clear()
        if self._resting is not None:
            for number in self.sequences - wanted:
                self._resting.rest(number)
        self._wanted = wanted
        for number in wanted:
            unread = self.unread(running[number])
            self._reading += unread if unread >= READING else 0
            self._read[number] = len(running[number].tokens)
        return self._drafter.draft()

    def came(self, number: int, accepted: int) -> None:
        """Takes in how many guesses of a sequence came true in a step, whoever made them."""
        if self.asking is not None and number in self._wanted and not self._reading:
            self.asking.came(number, accepted)

    def skip(self) -> None:
        """Is not asked in this step."""
        self.waited, self._wanted = None, frozenset()

    def wait(self, seconds: float, prompts: bool) -> None:
        """Takes in how long a step waited for it, and whether that computed prompts.

        Time for prompts, the target's or the drafter's own, is not charged at once.
        """
        self._reads = self._reading > 0
        if prompts or self._reads:
            self.waited = 0.0
            self._owed += seconds
        else:
            self.waited = seconds
            self.usual += (seconds - self.usual) / 32
        if self._reads:
            self._reading_s += seconds
            self._finish()

    def _finish(self) -> None:
        """Learns how long reading takes, where all is read; a long prompt takes several calls."""
        if isinstance(self._drafter, ReadingDrafter) and self._drafter.reading:
            return
        if self.asking is not None:
            self.asking.read(self._reading, max(self._reading_s - self.usual, 0.0))
        self._reading, self._reading_s = 0, 0.0

    def took(self, size: int, seconds: float) -> None:
        """Takes in how long a step took that computed no prompts."""
        if self.asking is not None and self._wanted and not self._reads:
            self.asking.took(size, seconds - self.alone)

    def owe(self) -> float:
        """This step's share of the seconds for which steps waited that computed prompts."""
        owed = self._owed / _INSTALMENTS
        self._owed -= owed
        return owed
