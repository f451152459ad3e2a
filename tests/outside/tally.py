"""Counts of what others' tests find."""

from __future__ import annotations

from collections import defaultdict

_SHOWN = 20


class Tally:
    """How many cases came out right, refused, wrong and the like."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._cases: dict[str, list[str]] = defaultdict(list)

    def add(self, kind: str, case: str) -> None:
        """Counts a case."""
        self._cases[kind].append(case)

    def close(self, **most: int) -> None:
        """Prints the counts. AssertionError if no case is right, or if a kind has more cases than ``most`` says.

        A kind that is not named there has none.
        """
        counts = {kind: len(cases) for kind, cases in self._cases.items()}
        print(f"{self._name}: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()))
        grown = {
            kind: cases for kind, cases in self._cases.items() if kind != "right" and len(cases) > most.get(kind, 0)
        }
        assert counts.get("right"), counts
        assert not grown, "\n".join(
            [
                f"{self._name}: more cases than allowed",
                *(f"{kind}: {case}" for kind, cases in grown.items() for case in cases[:_SHOWN]),
            ]
        )
