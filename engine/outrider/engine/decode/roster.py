"""The requests that an engine has taken and not ended."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from outrider.engine.decode.answer import Answer
from outrider.engine.requests.sequence import Sequence


class Roster:
    """Finds sequences by number, by request id and by deadline, and the answer of each.

    Attributes:
        sequences: sequences by number.
        answers: the answer of each, by number.
    """

    def __init__(self) -> None:
        self._sequences: dict[int, Sequence] = {}
        self.answers: dict[int, Answer] = {}
        self._numbers: dict[str, int] = {}
        self._with_deadline: dict[int, Sequence] = {}
        self._next_number = 1

    @property
    def sequences(self) -> Mapping[int, Sequence]:
        """All sequences, by number."""
        return self._sequences

    def __len__(self) -> int:
        return len(self._sequences)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._numbers

    def next_number(self) -> int:
        """A new number for a sequence."""
        self._next_number += 1
        return self._next_number - 1

    def enter(self, sequence: Sequence, answer: Answer) -> None:
        """Adds a sequence and its answer."""
        number = sequence.number
        self._sequences[number], self.answers[number] = sequence, answer
        self._numbers[sequence.request.id] = number
        if sequence.due < inf:
            self._with_deadline[number] = sequence

    def leave(self, sequence: Sequence) -> Answer:
        """Removes a sequence and returns its answer."""
        number = sequence.number
        del self._sequences[number], self._numbers[sequence.request.id]
        self._with_deadline.pop(number, None)
        return self.answers.pop(number)

    def find(self, request_id: str) -> Sequence | None:
        """The sequence of a request; None for an unknown one."""
        number = self._numbers.get(request_id)
        return None if number is None else self._sequences[number]

    def of(self, tenant: str) -> list[Sequence]:
        """The sequences of a tenant."""
        return [sequence for sequence in self._sequences.values() if sequence.request.tenant == tenant]

    def overdue(self, now: float) -> list[Sequence]:
        """The sequences whose deadline has passed."""
        return [sequence for sequence in self._with_deadline.values() if sequence.due <= now]
