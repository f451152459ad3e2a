"""Counts of failed authentications."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from outrider.gateway.identity.failed_attempts import LOCK_S, FailedAttempts

MOST = 3


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def attempts(clock: Clock) -> FailedAttempts:
    return FailedAttempts(MOST, clock)


def _add(attempts: FailedAttempts, address: str | None, key: str | None = None, times: int = 1) -> list[float]:
    return [attempts.add(ip_address(address) if address else None, key) for _ in range(times)]


def test_an_address_that_fails_too_often_has_to_wait_and_no_other(attempts: FailedAttempts, clock: Clock) -> None:
    assert _add(attempts, "192.0.2.1", times=MOST) == [0] * MOST
    assert _add(attempts, "192.0.2.1") == [LOCK_S]
    clock.now += LOCK_S - 1
    assert _add(attempts, "192.0.2.1") == [1]
    assert _add(attempts, "192.0.2.2") == [0]
    clock.now += 1
    assert _add(attempts, "192.0.2.1", times=MOST) == [0] * MOST


def test_failures_that_are_far_apart_do_not_add_up(attempts: FailedAttempts, clock: Clock) -> None:
    for _ in range(4 * MOST):
        assert _add(attempts, "192.0.2.1") == [0]
        clock.now += LOCK_S / 2


def test_a_key_that_is_guessed_from_many_addresses_is_counted_once(attempts: FailedAttempts) -> None:
    waits = [_add(attempts, f"192.0.2.{place}", "0" * 16)[0] for place in range(MOST + 1)]
    assert waits == [0] * MOST + [LOCK_S]
    assert _add(attempts, None, "0" * 16) == [LOCK_S]
    assert _add(attempts, None, times=2 * MOST) == [0] * 2 * MOST


def test_a_site_with_ipv6_is_one_address(attempts: FailedAttempts) -> None:
    assert [_add(attempts, f"2001:db8::{place}")[0] for place in range(MOST + 1)] == [0] * MOST + [LOCK_S]
    assert _add(attempts, "2001:db8:0:1::1") == [0]


def test_random_keys_do_not_push_an_address_out_and_many_addresses_do_not_fill_the_memory(
    attempts: FailedAttempts,
) -> None:
    _add(attempts, "192.0.2.1", times=MOST + 1)
    for place in range(10_001):
        attempts.add(None, f"{place:016x}")
    assert _add(attempts, "192.0.2.1") != [0]
    for place in range(10_000):
        attempts.add(ip_address((10 << 24) + place), None)
    assert _add(attempts, "192.0.2.1") == [0]
