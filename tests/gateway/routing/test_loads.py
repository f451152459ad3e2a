"""The number of requests of a verifier, as a gateway knows it between two announcements."""

from __future__ import annotations

from outrider.gateway.routing.verifiers import Loads
from outrider.mesh.registry import Member, State


def member(load: int, name: str = "a", **status: object) -> Member:
    return Member("verifier", name, "", State.READY, {"load": load} | status)


def test_own_streams_count_before_and_after_the_announcement_that_counts_them() -> None:
    loads = Loads()
    loads.hear([member(0)])
    loads.enter("a")
    assert loads.of(member(0)) == 1
    loads.hear([member(1)])
    assert loads.of(member(1)) == 1
    loads.leave("a")
    assert loads.of(member(1)) == 0


def test_requests_of_other_gateways_count_until_the_next_announcement() -> None:
    loads = Loads()
    loads.enter("a")
    loads.hear([member(4)])
    loads.enter("a")
    assert loads.of(member(4)) == 5
    loads.hear([member(2, free_pages=1)])
    assert loads.of(member(2)) == 2


def test_what_a_verifier_announced_earlier_is_not_heard_again_when_another_one_changes() -> None:
    loads = Loads()
    loads.enter("a")
    loads.hear([member(1)])
    loads.leave("a")
    loads.hear([member(1), member(7, "b")])
    assert (loads.of(member(1)), loads.of(member(7, "b"))) == (0, 7)


def test_an_announcement_from_before_a_submission_is_nobody_elses() -> None:
    loads = Loads()
    loads.enter("a")
    loads.hear([member(0)])
    assert loads.of(member(0)) == 1


def test_a_verifier_that_came_back_has_what_it_announces() -> None:
    loads = Loads()
    loads.hear([member(5)])
    loads.hear([])
    assert loads.of(member(5)) == 0
    loads.hear([member(5)])
    assert loads.of(member(5)) == 5
