"""Calls to a drafter for several sessions, and calls that only some drafters take."""

from __future__ import annotations

from outrider.engine.speculation import Drafter, RememberingDrafter, RestingDrafter


def commit(drafter: Drafter, commits: list[tuple[int, int, list[int]]]) -> None:
    """Appends decided tokens to sessions: number, length before them, tokens."""
    for number, length, tokens in commits:
        drafter.commit(number, length, tokens)


def rest(drafter: Drafter, numbers: list[int]) -> None:
    """Pauses sessions."""
    if isinstance(drafter, RestingDrafter):
        for number in numbers:
            drafter.rest(number)


def forget(drafter: Drafter, tenant: str) -> None:
    """Drops what the drafter keeps of a tenant."""
    if isinstance(drafter, RememberingDrafter):
        drafter.forget(tenant)


def expire(drafter: Drafter) -> None:
    """Drops what the drafter keeps of tenants that have not been there for long."""
    if isinstance(drafter, RememberingDrafter):
        drafter.expire()


def close(drafter: Drafter, numbers: list[int]) -> None:
    """Ends sessions."""
    for number in numbers:
        drafter.close(number)
