"""The prices of guesses that drafters get."""

from __future__ import annotations

import pytest
from outrider.engine.speculation.policy.guess_prices import GuessPrices

from tests.engine.drafters import Bargainer, EverythingDrafter


def test_time_is_worth_the_tokens_that_steps_decide_in_it() -> None:
    bargainer = Bargainer(5, 1)
    prices = GuessPrices([EverythingDrafter(5, 1), bargainer])
    prices.learn("alone", 3, 0.002, 0.0001)
    assert bargainer.prices == [pytest.approx((0.15, 1500))]


def test_kinds_of_steps_have_their_own_prices_which_follow_what_is_seen() -> None:
    bargainer = Bargainer(5, 1)
    prices = GuessPrices([bargainer])
    prices.learn("alone", 1, 1.0, 0.1)
    prices.learn("many", 100, 1.0, 0.002)
    assert bargainer.prices[-1] == pytest.approx((0.2, 100))
    for _ in range(200):
        prices.learn("alone", 5, 1.0, 0.01)
    assert bargainer.prices[2][1] < bargainer.prices[20][1] < 5
    assert bargainer.prices[-1] == pytest.approx((0.05, 5), rel=1e-3)
