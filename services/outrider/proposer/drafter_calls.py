"""Calls to a drafter for several sessions."""

from __future__ import annotations

from outrider.engine.speculation import Drafter


def commit(drafter: Drafter, commits: list[tuple[int, int, list[int]]]) -> None:
    """Appends decided tokens to sessions: number, length before them, tokens."""
    for number, length, tokens in commits:
        drafter.commit(number, length, tokens)


def rest(drafter: Drafter, numbers: list[int]) -> None:
    """Pauses sessions."""
    for number in numbers:
        drafter.rest(number)


def close(drafter: Drafter, numbers: list[int]) -> None:
    """Ends sessions."""
    for number in numbers:
        drafter.close(number)
