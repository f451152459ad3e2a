"""Preempted sequences: their answers stay the same, all requests end, and all pages are released."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.engine.decode.outcome import Outcome
from outrider.engine.requests.output import Finish, Output
from outrider.engine.requests.parameters import SamplingParams
from outrider.engine.requests.sequence import Request

from tests.engine.drafters import EverythingDrafter
from tests.engine.engines import VOCABULARY, MakeEngine, preemptions, request, requests, run, said

PAGES = 12


def summary(frames: list[Output]) -> dict[str, object]:
    """Tokens, text, log-probabilities and finish reason of an answer."""
    each: dict[str, list[object]] = defaultdict(list)
    for frame in frames:
        each["tokens"] += frame.tokens
        each["texts"].append("".join(frame.texts))
        each["likelihoods"] += frame.likelihoods or []
    return {**each, "texts": "".join(map(str, each["texts"])), "finish": frames[-1].finish}


def test_the_lowest_priority_then_the_most_served_tenant_then_the_youngest_loses_its_pages(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(VOCABULARY, pages=20)
    wanted = [
        request("most", 8, 48, "much"),
        request("low", 8, 48, "little", priority=-1),
        request("old", 8, 48, "little"),
        request("high", 8, 48, "much", priority=1),
        request("young", 8, 48, "little"),
    ]
    for each in wanted:
        engine.submit(each)
    engine.scheduler.counters.charge_input("much", 1000, 1.0)
    lost = preemptions(engine)
    run(engine, [])
    assert list(dict.fromkeys(name for name, _ in lost)) == ["low", "most", "young"]


def test_echoes_likelihoods_and_penalties_are_told_once_and_the_same(make_engine: MakeEngine) -> None:
    parameters = SamplingParams(
        repetition_penalty=1.3,
        frequency_penalty=0.5,
        presence_penalty=0.5,
        logit_bias={3: 1.0},
        bad_words=((7,), (1, 2)),
        min_tokens=4,
        logprobs=2,
        echo=True,
    )
    wanted = [replace(each, parameters=parameters) for each in requests(8)]
    alone = make_engine(VOCABULARY)
    plain = {each.id: summary(run(alone, [each])[each.id]) for each in wanted}
    engine = make_engine(VOCABULARY, [EverythingDrafter(VOCABULARY, 1)], pages=PAGES, prefill_rows=7)
    assert {name: summary(frames) for name, frames in run(engine, wanted).items()} == plain
    assert engine.scheduler.preempted


def test_a_prompt_that_is_preempted_half_way_goes_on_and_does_not_pass_for_cached(make_engine: MakeEngine) -> None:
    scored = SamplingParams(echo=True, logprobs=1)
    wanted = [request("low", 60, 8, priority=-1, parameters=scored), request("high", 8, 32)]
    alone = make_engine(VOCABULARY)
    plain = {each.id: summary(run(alone, [each])[each.id]) for each in wanted}
    engine = make_engine(VOCABULARY, pages=11, rows=65, prefill_rows=2)
    lost = preemptions(engine)
    frames = run(engine, wanted)
    assert lost[0][0] == "low"
    assert not frames["low"][0].likelihoods or frames["low"][0].first_index == -60
    assert {name: summary(each) for name, each in frames.items()} == plain
    usage = frames["low"][-1].usage
    assert usage is not None
    assert usage.cached_tokens == 0


def test_whoever_loses_its_pages_to_a_prompt_does_not_run_in_that_step(make_engine: MakeEngine) -> None:
    young, long = [request(f"low{index}", 8, 48, priority=-1) for index in range(2)], request("high", 60, 8)
    alone = make_engine(VOCABULARY)
    plain = {each.id: summary(run(alone, [each])[each.id]) for each in [*young, long]}
    engine = make_engine(VOCABULARY, pages=14, rows=65, prefill_rows=2)
    lost = preemptions(engine)
    frames: dict[str, list[Output]] = defaultdict(list)
    for each in young:
        engine.submit(each)
    for _ in range(10):
        for asked, frame in engine.step().outputs:
            frames[asked.id].append(frame)
    for name, more in run(engine, [long]).items():
        frames[name] += more
    assert lost
    assert {name: summary(each) for name, each in frames.items()} == plain


@pytest.fixture
def pool(make_engine: MakeEngine) -> dict[str, tuple[Request, list[int]]]:
    """Requests that fit into few pages, and the answer of each when it runs alone."""
    engine = make_engine(VOCABULARY)
    lengths = [(3, 9), (30, 20), (17, 40), (60, 30), (8, 8), (1, 60)]
    asked = [request(f"q{index}", *each, tenant=f"t{index % 3}") for index, each in enumerate(lengths)]
    return {each.id: (each, said(engine, [each])[each.id]) for each in asked}


Deed = tuple[str, int, int]
kinds = st.sampled_from(["submit", "step", "step", "cancel"])
deeds = st.lists(st.tuples(kinds, st.integers(0, 5), st.integers(-2, 2)), min_size=8, max_size=40)


def test_whatever_is_asked_for_and_given_up_leaves_no_page_behind(
    make_engine: MakeEngine, pool: dict[str, tuple[Request, list[int]]]
) -> None:
    now = 0.0
    engine = make_engine(
        VOCABULARY,
        [EverythingDrafter(VOCABULARY, 1)],
        pages=PAGES,
        running=4,
        rows=40,
        aging_s=5.0,
        clock=lambda: now,
    )

    @settings(max_examples=12, deadline=None, derandomize=True)
    @given(deeds)
    def hold(plan: list[Deed]) -> None:
        nonlocal now
        heard: dict[str, list[int]] = {}
        ended: dict[str, Finish] = {}
        asked: dict[str, str] = {}

        def hear(outcome: Outcome) -> None:
            for each, frame in outcome.outputs:
                heard.setdefault(each.id, []).extend(frame.tokens)
                if frame.finish is not None:
                    ended[each.id] = frame.finish

        for number, (deed, which, priority) in enumerate(plan):
            now += abs(priority)
            if deed == "submit":
                name = f"n{number}"
                asked[name] = f"q{which}"
                engine.submit(replace(pool[f"q{which}"][0], id=name, priority=priority))
            elif deed == "cancel" and asked:
                engine.cancel(list(asked)[which % len(asked)])
            else:
                hear(engine.step())
        while engine.busy or engine.has_news:
            hear(engine.step())
        assert engine.scheduler.pages.available == PAGES
        assert ended.keys() == asked.keys()
        for name, original in asked.items():
            whole = pool[original][1]
            assert heard[name] == (whole if ended[name] is Finish.LENGTH else whole[: len(heard[name])])

    hold()
    assert engine.scheduler.preempted


def test_nobody_loses_its_pages_over_and_over(
    make_engine: MakeEngine, pool: dict[str, tuple[Request, list[int]]]
) -> None:
    now = 0.0
    engine = make_engine(VOCABULARY, pages=PAGES, rows=65, prefill_rows=5, aging_s=5.0, clock=lambda: now)

    @settings(max_examples=12, deadline=None, derandomize=True)
    @given(
        st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 1), st.integers(0, 2)), min_size=2, max_size=8),
        st.floats(0, 30),
    )
    def hold(asked: list[tuple[int, int, int]], tick: float) -> None:
        def ticks() -> None:
            nonlocal now
            now += tick

        engine.runner.before = ticks
        for number, (which, priority, tenant) in enumerate(asked):
            each = pool[f"q{which}"][0]
            engine.submit(replace(each, id=f"n{number}", priority=priority, tenant=f"t{tenant}"))
        lost = preemptions(engine)
        run(engine, [])
        assert engine.scheduler.pages.available == PAGES
        assert len(lost) == len(set(lost)), "none is preempted twice without new tokens in between"

    hold()
    assert engine.scheduler.preempted
