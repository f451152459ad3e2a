"""Calls to a drafter for several sessions."""

from __future__ import annotations

from outrider.engine.speculation import Drafter
from torch import Tensor


def commit(drafter: Drafter, commits: list[tuple[int, int, list[int]]]) -> None:
    """Appends decided tokens to sessions: number, length before them, tokens."""
    for number, length, tokens in commits:
        drafter.commit(number, length, tokens)


def see(drafter: Drafter, seen: list[tuple[int, int, Tensor]]) -> None:
    """Passes on states of sessions: number, place of the first token, states as in `Drafter.see`."""
    for number, start, states in seen:
        drafter.see(number, start, states)


def rest(drafter: Drafter, numbers: list[int]) -> None:
    """Pauses sessions."""
    for number in numbers:
        drafter.rest(number)


def close(drafter: Drafter, numbers: list[int]) -> None:
    """Ends sessions."""
    for number in numbers:
        drafter.close(number)
