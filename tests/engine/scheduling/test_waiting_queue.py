"""The order of the queue: by priority, then by the tenants' counters, then by arrival."""

from __future__ import annotations

from outrider.engine.requests.sequence import Request, Sequence
from outrider.engine.sampling import Sampling
from outrider.engine.scheduling.fairness import TokenCounters
from outrider.engine.scheduling.waiting_queue import WaitingQueue


def sequence(number: int, tenant: str = "t", priority: int = 0) -> Sequence:
    return Sequence.start(Request(f"r{number}", tenant, [1], Sampling(0.0), 8, priority=priority), number, None)


def order(waiting: WaitingQueue, now: float = 0.0) -> list[int]:
    numbers = []
    while (first := waiting.first(now)) is not None:
        waiting.take(first, now)
        numbers.append(first.number)
    return numbers


def test_priority_goes_before_what_was_served_and_that_before_arrival() -> None:
    counters = TokenCounters()
    waiting = WaitingQueue(counters, 10.0)
    counters.charge_output("much", 5, 1.0)
    for made in (sequence(1, "much"), sequence(2, "little"), sequence(3, "much", 1), sequence(4, "little")):
        waiting.add(made, 0.0)
    assert [waiting.ahead(made, 0.0) for made in sorted(waiting, key=lambda made: made.number)] == [3, 1, 0, 2]
    assert order(waiting) == [3, 2, 4, 1]
    assert len(waiting) == 0


def test_a_priority_that_is_passed_over_goes_up_and_falls_back_when_it_was_served() -> None:
    waiting = WaitingQueue(TokenCounters(), 10.0)
    for number in (1, 2):
        waiting.add(sequence(number, priority=0), 0.0)
    taken = []
    for step in range(80):
        waiting.add(sequence(100 + step, priority=3), float(step))
        first = waiting.first(float(step))
        assert first is not None
        waiting.take(first, float(step))
        taken.append(first.number)
    assert [step for step, number in enumerate(taken) if number < 100] == [30, 60]


def test_what_is_taken_keeps_the_level_it_had_come_to() -> None:
    waiting = WaitingQueue(TokenCounters(), 10.0)
    old = sequence(1)
    waiting.add(old, 0.0)
    waiting.take(old, 45.0)
    assert old.level == 4
    waiting.add(sequence(2, priority=3), 50.0)
    waiting.add(old, 50.0)
    assert order(waiting, 50.0) == [1, 2]


def test_old_requests_of_one_tenant_do_not_go_before_new_ones_of_another() -> None:
    counters = TokenCounters()
    waiting = WaitingQueue(counters, 10.0)
    counters.charge_output("flood", 100, 1.0)
    for number in range(1, 50):
        waiting.add(sequence(number, "flood"), 0.0)
    waiting.add(sequence(99, "calm"), 1000.0)
    first = waiting.first(1000.0)
    assert first is not None
    assert first.number == 99


def test_what_is_removed_is_not_waited_for() -> None:
    waiting = WaitingQueue(TokenCounters(), 10.0)
    made = [sequence(number) for number in range(5)]
    for each in made:
        waiting.add(each, 0.0)
    assert waiting.remove(made[0])
    assert waiting.remove(made[3])
    assert not waiting.remove(made[3])
    assert order(waiting) == [1, 2, 4]


def test_output_counts_more_than_input_and_less_for_more_weight() -> None:
    counters = TokenCounters()
    counters.charge_input("a", 10, 1.0)
    counters.charge_output("a", 10, 1.0)
    counters.charge_input("b", 10, 2.0)
    counters.charge_output("b", 10, 2.0)
    assert (counters.of("a"), counters.of("b")) == (30.0, 15.0)


def test_a_tenant_that_comes_back_is_lifted_to_the_least_that_is_there() -> None:
    counters = TokenCounters()
    for tenant, tokens in (("a", 50), ("b", 80)):
        counters.enter(tenant)
        counters.charge_input(tenant, tokens, 1.0)
    counters.enter("new")
    assert counters.of("new") == 50
    counters.charge_input("new", 100, 1.0)
    counters.leave("new")
    counters.enter("new")
    assert counters.of("new") == 150, "what it was served beyond the others stays charged"
    counters.enter("b")
    assert counters.of("b") == 130, "who is there is not lifted"


def test_with_nobody_there_a_tenant_is_lifted_to_the_last_that_left() -> None:
    counters = TokenCounters()
    counters.enter("a")
    counters.charge_input("a", 70, 1.0)
    counters.leave("a")
    counters.enter("b")
    assert counters.of("b") == 70


def test_counters_of_tenants_that_are_gone_do_not_pile_up() -> None:
    counters = TokenCounters(most_idle=10)
    counters.enter("stays")
    counters.charge_input("stays", 1000, 1.0)
    for index in range(40):
        counters.enter(f"t{index}")
        counters.charge_input(f"t{index}", index, 1.0)
        counters.leave(f"t{index}")
    assert sum(counters.of(f"t{index}") > 0 for index in range(40)) <= 11
    assert counters.of("t39") == 1039
    assert counters.of("stays") == 1000


def test_what_is_due_is_by_the_weights_of_those_that_are_there() -> None:
    counters = TokenCounters()
    counters.enter("one")
    assert counters.due("one", 8) == 8
    for _ in range(3):
        counters.enter("three", 3.0)
    assert (counters.due("one", 8), counters.due("three", 8)) == (2, 6)
    assert counters.due("one", 2) == 1
    for _ in range(3):
        counters.leave("three")
    assert counters.due("one", 8) == 8
