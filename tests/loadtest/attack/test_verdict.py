"""Verdicts on attacks: outcomes of streams, deaths of processes, waits and problems."""

from __future__ import annotations

import pytest
from outrider.loadtest.attack.mesh import Mesh
from outrider.loadtest.attack.reader import StreamRecord
from outrider.loadtest.attack.verdict import Attack, AttackLog, Pace, Verdict, judge
from outrider.loadtest.attack.victims import compare
from outrider.loadtest.attack.watch import ProcessChanges

QUIET = Pace(10, 1000, 0.001, 0.01, 0.5)
UNCHANGED = ProcessChanges({"verifier": [1, 2]}, {"verifier": [1, 2]}, {}, {"verifier": 3.0})


async def nothing(mesh: Mesh, log: AttackLog) -> None: ...


ATTACK = Attack("nothing", "Nothing is done.", nothing, stall_s=4.0)


def story(outcome: str = "whole", began: float = 10.0, wait: float = 0.1) -> StreamRecord:
    arrivals = [(began + 0.5, 1), (began + 0.5 + wait, 2)]
    return StreamRecord(1, began, began + 1 + wait, arrivals, outcome=outcome, request="abc", why="said so")


def verdict(*stories: StreamRecord, log: AttackLog | None = None, changes: ProcessChanges = UNCHANGED) -> Verdict:
    return judge(ATTACK, log or AttackLog(), changes, list(stories), (10.0, 12.0, 20.0), QUIET)


def test_victims_that_notice_nothing_are_a_pass_with_figures() -> None:
    judged = verdict(story(), story())
    assert judged.passed
    assert (judged.pace.streams, judged.pace.tokens, judged.recovered_s) == (2, 4, 8.0)
    assert judged.pace.p50_s == pytest.approx(0.05)
    assert judged.pace.stall_s == pytest.approx(0.5)


@pytest.mark.parametrize("outcome", ["lost", "hung", "altered"])
def test_one_stream_that_went_wrong_is_a_failure_that_names_it(outcome: str) -> None:
    judged = verdict(story(), story(outcome))
    assert not judged.passed
    assert judged.wrong == [f"1 streams {outcome}"]
    assert judged.failures == [f"abc: {outcome}, said so"]


def test_a_process_that_died_is_a_failure() -> None:
    changes = ProcessChanges(UNCHANGED.before, UNCHANGED.after, {"verifier": 1}, {"verifier": 0.0})
    assert verdict(story(), changes=changes).wrong == ["1 verifier died"]


def test_a_long_wait_is_a_failure_before_a_stream_ends_too() -> None:
    assert verdict(story(wait=5.0)).slow == ["a victim waited 5.0 s, over 4.0 s"]
    silent = StreamRecord(1, 10.0, 15.0, outcome="whole")
    assert verdict(silent).slow
    assert verdict(story(wait=3.0)).passed


def test_problems_of_the_attacker_memory_and_refusals_are_failures() -> None:
    log = AttackLog()
    log.problem("a request of 9 MiB was taken")
    grown = ProcessChanges(UNCHANGED.before, UNCHANGED.after, {}, {"gateway": 600.0})
    turned_away = story()
    turned_away.refused = 2
    assert verdict(story(), log=log).wrong == ["1 times a request of 9 MiB was taken"]
    assert verdict(story(), changes=grown).wrong == ["gateway grew by 600 MiB, over 512"]
    assert verdict(turned_away).wrong == ["victims were refused 2 times"]


def test_another_answer_than_the_right_one_is_altered() -> None:
    made = story()
    made.answer = [[1, 2, 4], "abd", "length", [3, 3]]
    judged = compare(made, [[1, 2, 3], "abc", "length", [3, 3]])
    assert (judged.outcome, judged.why) == ("altered", "3 tokens of 3, the first 2 of them the same")
    made = story()
    made.answer = [[1], "a", "length", [3, 1]]
    assert compare(made, [[1], "a", "length", [3, 1]]).outcome == "whole"
