"""The bars on what a stranger and the owner of prompts can tell from times."""

from __future__ import annotations

from outrider.loadtest.experiments.timing import Probes, judge

SAME = [0.02 + 0.0001 * (number % 20) for number in range(60)]
SOONER = [seconds - 0.01 for seconds in SAME]


def _met(stranger: Probes, owner: Probes) -> list[bool]:
    return [bar.met for bar in judge(stranger, owner)]


def test_a_stranger_who_sees_nothing_and_an_owner_who_sees_it_meet_all_bars() -> None:
    assert _met(Probes("stranger", SAME, SAME), Probes("owner", SOONER, SAME, 9)) == [True, True, True]


def test_a_stranger_who_gets_known_prompts_sooner_misses_a_bar() -> None:
    assert _met(Probes("stranger", SOONER, SAME, 9), Probes("owner", SOONER, SAME, 9)) == [False, False, True]


def test_a_probe_that_does_not_even_see_the_owners_prompts_is_no_proof() -> None:
    assert _met(Probes("stranger", SAME, SAME), Probes("owner", SAME, SAME)) == [True, True, False]
