"""A version is given up where it earns clearly less than the one before, and not for what texts make differ."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from outrider.engine.speculation.policy.probation import LOOKS, Probation, fallen

GROUP = "head", None
ONE, MANY = 1, 4
"""Sizes of steps."""
ANSWER = 40
"""Steps of an answer."""


def enter(probation: Probation, shares: Iterator[float], answers: int, size: int = ONE) -> str | None:
    """Enters answers whose steps each earn a share of the time; why the version was given up."""
    for share in (next(shares) for _ in range(answers)):
        for _ in range(ANSWER):
            if why := probation.enter(GROUP, size, share * 0.01, 0.01):
                return why
        probation.end_answer("t")
    return None


def always(share: float) -> Iterator[float]:
    while True:
        yield share


def change(before: Iterator[float], after: Iterator[float]) -> str | None:
    probation = Probation()
    assert enter(probation, before, 60) is None
    probation.begin(GROUP, judged=True)
    return enter(probation, after, 60)


@pytest.mark.parametrize(("before", "after", "fell"), [(0.3, 0.2, "8%"), (0.3, 0.0, "23%"), (0.0, -0.2, "20%")])
def test_a_version_that_earns_less_is_given_up(before: float, after: float, fell: str) -> None:
    why = change(always(before), always(after))
    assert why is not None
    assert f"fell by {fell}: it earns {after:.0%} of the time, not {before:.0%}" in why


@pytest.mark.parametrize(("before", "after"), [(0.3, 0.3), (0.3, 0.25), (0.2, 0.4), (0.0, 0.0)])
def test_a_version_that_earns_as_much_or_little_less_stays(before: float, after: float) -> None:
    assert change(always(before), always(after)) is None


def given_up(dice: random.Random, before: tuple[float, float], after: tuple[float, float]) -> bool:
    """Whether a change is taken for worse at any look, where a block earns any share between two bounds."""
    was, now = ([dice.uniform(*bounds) for _ in range(LOOKS[-1])] for bounds in (before, after))
    return any(fallen(was[-look:], now[:look]) for look in LOOKS)


def test_equal_versions_stay_whatever_the_texts_are() -> None:
    dice = random.Random(5)
    assert sum(given_up(dice, (0.0, 0.9), (0.0, 0.9)) for _ in range(3000)) <= 1


def test_a_version_that_takes_half_of_it_away_is_given_up_on_mixed_texts_too() -> None:
    dice = random.Random(6)
    assert sum(given_up(dice, (0.2, 0.8), (0.1, 0.4)) for _ in range(100)) > 90


def test_one_long_answer_of_another_text_proves_nothing() -> None:
    probation = Probation()
    enter(probation, always(0.5), 20)
    probation.begin(GROUP, judged=True)
    assert not any(probation.enter(GROUP, ONE, 0.0, 0.01) for _ in range(4000))


def test_steps_of_another_size_prove_nothing() -> None:
    probation = Probation()
    enter(probation, always(0.5), 20, ONE)
    probation.begin(GROUP, judged=True)
    assert enter(probation, always(0.0), 60, MANY) is None
    assert enter(probation, always(0.0), 12, ONE) is not None


def test_the_comparison_ends_and_what_comes_later_is_for_the_policy() -> None:
    probation = Probation()
    enter(probation, always(0.3), 60)
    probation.begin(GROUP, judged=True)
    enter(probation, always(0.3), 30)
    assert probation.on_trial(GROUP)
    enter(probation, always(0.3), 40)
    assert not probation.on_trial(GROUP)
    assert enter(probation, always(0.0), 60) is None


def test_a_first_version_is_compared_with_nothing() -> None:
    probation = Probation()
    probation.begin(GROUP, judged=True)
    assert enter(probation, always(-0.5), 60) is None
