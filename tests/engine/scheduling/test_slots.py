"""Slots and places in the queue when one tenant asks for more than there are, on a real engine."""

from __future__ import annotations

import pytest
from outrider.engine.decode.engine import Engine
from outrider.engine.scheduling.scheduler import QueueFull

from tests.engine.engines import VOCABULARY, MakeEngine, preemptions, request, run, said


def running(engine: Engine) -> list[str]:
    return sorted(each.request.id for each in engine.scheduler.running)


def flooded(make_engine: MakeEngine, slots: int = 4, **more: float) -> Engine:
    """An engine in which one tenant holds all slots with long answers, and has more requests in the queue."""
    engine = make_engine(VOCABULARY, running=slots)
    for index in range(2 * slots):
        engine.submit(request(f"flood{index}", answer=60, tenant="flood", **more))
    for _ in range(3):
        engine.step()
    assert running(engine) == [f"flood{index}" for index in range(slots)]
    return engine


def test_a_tenant_below_its_share_waits_for_no_answer_of_one_above_it(make_engine: MakeEngine) -> None:
    engine = flooded(make_engine)
    for index in range(3):
        engine.submit(request(f"polite{index}", answer=60, tenant="polite"))
    engine.step()
    assert running(engine) == ["flood0", "flood1", "flood2", "polite0"], "at once, and then what it was served counts"
    preempted = preemptions(engine)
    for _ in range(20):
        engine.step()
    assert running(engine) == ["flood0", "flood1", "polite0", "polite1"]
    assert [name for name, _ in preempted] == ["flood2"], "nothing goes to and fro between tenants with their shares"


def test_who_lost_a_slot_says_the_same_in_the_end(make_engine: MakeEngine) -> None:
    wanted = [request(f"flood{index}", answer=30, tenant="flood") for index in range(4)]
    alone = {each.id: said(make_engine(VOCABULARY), [each])[each.id] for each in wanted}
    engine = make_engine(VOCABULARY, running=4)
    frames = []
    for each in wanted:
        engine.submit(each)
    for step in range(400):
        if step % 7 == 3:
            engine.submit(request(f"polite{step}", answer=4, tenant="polite"))
        frames += [(asked.id, frame) for asked, frame in engine.step().outputs]
    assert engine.scheduler.preempted > 1
    for name, answer in alone.items():
        assert [token for other, frame in frames if other == name for token in frame.tokens] == answer


def test_shares_are_by_weight_and_a_slot_each_at_least(make_engine: MakeEngine) -> None:
    engine = flooded(make_engine, weight=3.0)
    for index in range(3):
        engine.submit(request(f"polite{index}", answer=60, tenant="polite"))
    engine.step()
    assert running(engine) == ["flood0", "flood1", "flood2", "polite0"]
    for index in range(9):
        engine.submit(request(f"other{index}", answer=60, tenant=f"t{index}"))
    engine.step()
    assert [name for name in running(engine) if name.startswith("flood")] == ["flood0"]
    assert len({each.request.tenant for each in engine.scheduler.running}) == 4


def test_neither_a_lower_priority_nor_a_tenant_that_was_served_more_takes_a_slot(make_engine: MakeEngine) -> None:
    engine = flooded(make_engine)
    preempted = preemptions(engine)
    engine.submit(request("low", answer=60, tenant="polite", priority=-1))
    engine.step()
    engine.scheduler.counters.charge_output("much", 10_000, 1.0)
    engine.submit(request("much", answer=60, tenant="much"))
    engine.step()
    assert preempted == []
    engine.submit(request("due", answer=60, tenant="polite"))
    engine.step()
    assert [name for name, _ in preempted] == ["flood3"]


def test_a_full_queue_is_full_for_who_has_a_share_of_it(make_engine: MakeEngine) -> None:
    engine = make_engine(VOCABULARY, running=1, waiting=4)
    engine.submit(request("runs", answer=60, tenant="flood"))
    engine.step()
    for index in range(4):
        engine.submit(request(f"flood{index}", tenant="flood"))
    with pytest.raises(QueueFull):
        engine.submit(request("more", tenant="flood"))
    for index in range(2):
        engine.submit(request(f"polite{index}", answer=2, tenant="polite"))
    with pytest.raises(QueueFull):
        engine.submit(request("too many", tenant="polite"))
    assert len(engine.scheduler.waiting) == 6
    run(engine, [])
    engine.submit(request("later", tenant="flood"))


def test_a_deadline_that_a_slot_of_another_lets_meet_is_no_reason_to_refuse(make_engine: MakeEngine) -> None:
    engine = flooded(make_engine)
    estimate, now = engine.estimate, engine.scheduler.now()
    polite = request("polite", answer=2, tenant="polite")
    engine.submit(polite)
    waits = next(each for each in engine.scheduler.waiting if each.request is polite)
    assert estimate.first_token(engine.scheduler, waits, now) < 20 * estimate.token_s
