"""Local drafters: the calls that each one needs, and for how long steps wait for it."""

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
"""Prefix of the sources of local drafters' trees."""
_INSTALMENTS = 32


class LocalDrafter:
    """One local drafter, which costs nothing while it is paused or no sequence wants it.

    Attributes:
        name: name of the drafter.
        source: source of its trees.
        seeing: the drafter, if it guesses from the target's hidden states.
        priced: whether the drafter takes prices of guesses.
        asking: chooses the sequences that the drafter is asked for; None to ask for all.
        paused: whether the drafter is paused.
        waited: seconds for which the step waited for the drafter; None if the step did not ask it.
        usual: seconds for which steps usually wait for the drafter.
        sequences: numbers of the sequences that the drafter may guess for.
        alone: seconds that the step would take without the drafter.
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
        """Whether the drafter is not paused and has sequences."""
        return bool(self.sequences) and not self.paused

    def open(self, number: int, opening: Opening) -> None:
        """Starts guessing for a sequence."""
        self.sequences.add(number)
        self._drafter.open(number, opening)

    def follow(self, number: int, length: int, tokens: list[int]) -> None:
        """Passes ``tokens``, decided after ``length`` others, to the drafter; to a paused one when it is next asked."""
        if number in self._behind or (self.paused and self.seeing is None):
            self._behind.setdefault(number, length)
        else:
            self._drafter.commit(number, length, tokens)

    def close(self, sequence: Sequence) -> None:
        """Passes the last tokens of a sequence to the drafter and ends the sequence."""
        number = sequence.number
        self.sequences.discard(number)
        self._read.pop(number, None)
        if self.asking is not None:
            self.asking.close(number)
        if (length := self._behind.pop(number, None)) is not None:
            self._drafter.commit(number, length, sequence.tokens[length:])
        self._drafter.close(number)

    def unread(self, sequence: Sequence) -> int:
        """Tokens of a sequence that the drafter has not read."""
        return len(sequence.tokens) - self._read.get(sequence.number, 0)

    def draft(self, running: Mapping[int, Sequence], wanted: Set[int]) -> Seq[tuple[int, DraftTree]]:
        """The drafter's guesses for the sequences ``wanted``; ``running`` maps numbers to sequences."""
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
        """Learns how many guesses of any drafter a step accepted for a sequence."""
        if self.asking is not None and number in self._wanted and not self._reading:
            self.asking.came(number, accepted)

    def skip(self) -> None:
        """Notes that this step does not ask the drafter."""
        self.waited, self._wanted = None, frozenset()

    def wait(self, seconds: float, prompts: bool) -> None:
        """Learns how many seconds a step waited for the drafter, and whether the step computed ``prompts``.

        Time for prompts, the target's or the drafter's own, is charged in instalments (`owe`).
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
        """Learns how long reading takes, once the drafter has read everything; a long prompt takes several calls."""
        if isinstance(self._drafter, ReadingDrafter) and self._drafter.reading:
            return
        if self.asking is not None:
            self.asking.read(self._reading, max(self._reading_s - self.usual, 0.0))
        self._reading, self._reading_s = 0, 0.0

    def took(self, size: int, seconds: float) -> None:
        """Learns how many seconds a step without prompts took."""
        if self.asking is not None and self._wanted and not self._reads:
            self.asking.took(size, seconds - self.alone)

    def owe(self) -> float:
        """This step's instalment of the seconds that steps with prompts waited for the drafter."""
        owed = self._owed / _INSTALMENTS
        self._owed -= owed
        return owed
