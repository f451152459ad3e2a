"""Rows, slots and pages shared among sequences, on a real engine."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from outrider.engine.scheduling.plan import Limits
from outrider.engine.scheduling.scheduler import NeverFits

from tests.engine.drafters import EverythingDrafter
from tests.engine.engines import VOCABULARY, MakeEngine, Rows, request, requests, run, said, watch


def counts(rows: Rows) -> tuple[int, int]:
    """Number of rows of prompts, and of all rows."""
    return sum(count for count, prompt in rows.values() if prompt), sum(count for count, _ in rows.values())


def test_no_step_is_longer_than_its_limit_and_none_shorter_while_a_prompt_waits(make_engine: MakeEngine) -> None:
    engine = make_engine(VOCABULARY, [EverythingDrafter(VOCABULARY, 1)], rows=40, running=8, prefill_rows=64)
    steps = watch(engine)
    wanted = requests(24)
    alone = make_engine(VOCABULARY)
    assert said(engine, wanted) == {each.id: said(alone, [each])[each.id] for each in wanted}
    assert max(counts(rows)[1] for rows in steps) == 40
    for rows, following in pairwise(steps):
        if any(prompt and following.get(name, (0, False))[1] for name, (_, prompt) in rows.items()):
            assert counts(rows)[1] == 40, "a prompt has more to compute in the next step"


def test_everyone_decodes_and_a_prompt_moves_in_every_step_however_much_is_guessed(make_engine: MakeEngine) -> None:
    engine = make_engine(VOCABULARY, [EverythingDrafter(VOCABULARY, 1)], rows=20, running=8)
    steps = watch(engine)
    for index in range(4):
        engine.submit(request(f"short{index}", answer=60))
    engine.step()
    engine.submit(request("long", prompt=200, answer=1))
    run(engine, [])
    steps = [rows for rows in steps if rows.get("long", (0, False))[1]]
    for rows in steps[:-1]:
        assert {f"short{index}" for index in range(4)} <= rows.keys()
        assert rows["long"][0] == 8, "half of the 16 rows that are left"
        assert counts(rows)[1] == 20
    assert len(steps) == 25


def test_rows_that_nobody_guesses_with_go_to_prompts(make_engine: MakeEngine) -> None:
    engine = make_engine(VOCABULARY, rows=20, running=8)
    steps = watch(engine)
    engine.submit(request("short", answer=60))
    engine.step()
    engine.submit(request("long", prompt=200, answer=1))
    run(engine, [])
    assert [rows["long"][0] for rows in steps if rows.get("long", (0, False))[1]] == [19] * 10 + [10]


def test_a_limit_of_rows_that_leaves_none_for_prompts_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"8 rows .* beside 8"):
        Limits(8, 8, 8, 8, 8, 8, 64, rows=8)


def test_prompts_go_by_priority_then_by_what_tenants_were_served(make_engine: MakeEngine) -> None:
    engine = make_engine(VOCABULARY, running=2, prefill_rows=8)
    steps = watch(engine)
    wanted = [
        request("a1", 20, 4, "a"),
        request("a2", 20, 4, "a"),
        request("b1", 20, 4, "b"),
        request("high", 20, 4, "a", priority=1),
    ]
    assert [engine.submit(each).ahead for each in wanted] == [0, 1, 0, 0]
    run(engine, [])
    first = list(dict.fromkeys(name for rows in steps for name in rows))
    assert first == ["high", "b1", "a1", "a2"]


def test_two_tenants_are_served_by_their_weights(make_engine: MakeEngine) -> None:
    engine = make_engine(VOCABULARY, running=4)
    for index in range(60):
        engine.submit(request(f"a{index}", answer=8, tenant="a"))
        engine.submit(request(f"b{index}", answer=24, tenant="b"))
        engine.submit(request(f"c{index}", answer=16, tenant="c", weight=2.0))
    served: Counter[str] = Counter()
    while served.total() < 1200:
        for asked, frame in engine.step().outputs:
            served[asked.tenant] += len(frame.tokens)
    assert served["a"] / served["b"] == pytest.approx(1, abs=0.2)
    assert served["c"] / (served["a"] + served["b"]) == pytest.approx(1, abs=0.2)


def test_a_low_priority_moves_however_many_higher_ones_come(make_engine: MakeEngine) -> None:
    now = 0.0
    engine = make_engine(VOCABULARY, running=1, aging_s=10.0, clock=lambda: now)
    engine.submit(request("low", answer=3))
    ended: list[str] = []
    for step in range(100):
        engine.submit(request(f"high{step}", answer=1, priority=4))
        now = float(step)
        ended += [asked.id for asked, frame in engine.step().outputs if frame.finish]
        if ended[-1:] == ["low"]:
            break
    assert len(ended) == 41
    assert ended[-1] == "low"


def test_what_was_computed_before_is_not_charged(make_engine: MakeEngine) -> None:
    engine = make_engine(VOCABULARY, [EverythingDrafter(VOCABULARY, 1)], pages=14)
    wanted = [replace(each, tenant=f"t{index % 2}") for index, each in enumerate(requests(24))]
    frames = run(engine, wanted)
    assert engine.scheduler.preempted > 3
    last = [each[-1].usage for each in frames.values()]
    computed = sum(usage.prompt_tokens - usage.cached_tokens + 2 * usage.completion_tokens for usage in last if usage)
    assert sum(usage.cached_tokens for usage in last if usage) > 0
    assert sum(map(engine.scheduler.counters.of, ("t0", "t1"))) == computed


def test_a_request_that_can_never_fit_is_refused_and_one_that_just_fits_is_not(make_engine: MakeEngine) -> None:
    engine = make_engine(VOCABULARY, pages=4)
    with pytest.raises(NeverFits, match=r"20 .* 14 .* 32 .* 13"):
        engine.submit(request("r", prompt=20, answer=14))
    assert (engine.load, engine.busy) == (0, False)
    assert len(said(engine, [request("r", prompt=20, answer=13)])["r"]) == 13


def test_crowded_steps_use_every_slot(make_engine: MakeEngine) -> None:
    engine = make_engine(VOCABULARY, running=4)
    run(engine, [replace(each, max_tokens=1 + index % 5) for index, each in enumerate(requests(16))])
    assert engine.tally.crowded_steps
    assert engine.tally.crowded_sequences == 4 * engine.tally.crowded_steps
    assert 0 < engine.tally.crowded_tokens < engine.tally.tokens
    assert engine.tally.crowded_seconds > 0
