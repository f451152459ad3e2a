"""Shares of tenants over several verifiers: counters that hear of each other, and real engines that tell each other."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
from outrider.engine.decode.engine import Engine
from outrider.engine.scheduling.fairness import TokenCounters
from outrider.wire.served import MOST_TENANTS, Share

from tests.engine.engines import VOCABULARY, MakeEngine, request

HEAVY, LIGHT = "heavy", "light"
PROMPT = 4
_numbers = count()
WEIGHTS = {HEAVY: 10.0, LIGHT: 1.0}


def exchange(engines: list[Engine]) -> None:
    """Has each engine hear what the others served since the last time."""
    told = [engine.scheduler.counters.tell(engine.scheduler.waiting.tenants, MOST_TENANTS) for engine in engines]
    for engine in engines:
        for other, shares in zip(engines, told, strict=True):
            if other is not engine:
                engine.scheduler.counters.hear(shares, 1.0)


def serve(engines: list[Engine], backlogs: list[dict[str, int]], steps: int, every: int = 10) -> Counter[str]:
    """Service of each tenant when the backlogs (tokens of an answer, by tenant) are kept full at each engine."""
    service: Counter[str] = Counter()
    for step in range(steps):
        for engine, backlog in zip(engines, backlogs, strict=True):
            for tenant, answer in backlog.items():
                while sum(each.request.tenant == tenant for each in engine.scheduler.waiting) < 4:
                    asked = request(f"r{next(_numbers)}", PROMPT, answer, tenant, weight=WEIGHTS[tenant])
                    engine.submit(asked)
            for asked, frame in engine.step().outputs:
                service[asked.tenant] += 2 * len(frame.tokens) + PROMPT * (frame.first_index == 0)
        if step % every == every - 1:
            exchange(engines)
    return service


@pytest.mark.parametrize(
    "backlogs",
    [
        [{HEAVY: 6}, {HEAVY: 6, LIGHT: 6}],
        [{HEAVY: 5, LIGHT: 8}, {HEAVY: 12, LIGHT: 3}],
        [{HEAVY: 6}, {HEAVY: 6}, {HEAVY: 6, LIGHT: 9}],
    ],
    ids=["light at one of two", "other lengths", "light at one of three"],
)
def test_shares_over_verifiers_are_by_weight(make_engine: MakeEngine, backlogs: list[dict[str, int]]) -> None:
    engines: list[Engine] = [make_engine(VOCABULARY, running=4) for _ in backlogs]
    serve(engines, backlogs, 100)
    service = serve(engines, backlogs, 600)
    assert service[LIGHT] / service.total() == pytest.approx(1 / 11, rel=0.02)


def test_without_news_of_each_other_shares_differ(make_engine: MakeEngine) -> None:
    engines: list[Engine] = [make_engine(VOCABULARY, running=4) for _ in range(2)]
    service = serve(engines, [{HEAVY: 6}, {HEAVY: 6, LIGHT: 6}], 200, every=1000)
    assert service[LIGHT] / service.total() < 0.06


def test_a_tenant_that_waits_elsewhere_keeps_its_claim_and_one_that_does_not_is_lifted() -> None:
    counters = TokenCounters(clock=lambda: 0.0)
    counters.hear({"waits": Share(5.0, True), "idle": Share(5.0, False)}, 1.0)
    counters.enter("busy")
    counters.charge_output("busy", 50, 1.0)
    counters.hear({"busy": Share(0.0, True), "waits": Share(1.0, True)}, 1.0)
    counters.enter("waits")
    counters.enter("idle")
    assert (counters.of("waits"), counters.of("idle"), counters.of("busy")) == (6.0, 6.0, 105.0)


def test_a_verifier_that_joins_late_gives_nobody_a_claim_on_time_before() -> None:
    counters = TokenCounters(clock=lambda: 0.0)
    counters.enter("here")
    counters.charge_output("here", 50, 1.0)
    counters.hear({"there": Share(3.0, True)}, 1.0)
    assert counters.of("there") == counters.of("here") + 3.0


def test_a_tenant_that_no_longer_waits_elsewhere_is_lifted_when_it_returns() -> None:
    now = [0.0]
    counters = TokenCounters(clock=lambda: now[0])
    counters.hear({"gone": Share(1.0, True)}, 1.0)
    counters.enter("here")
    counters.charge_output("here", 50, 1.0)
    now[0] = 4.0
    counters.enter("gone")
    assert counters.of("gone") == counters.of("here")


def test_many_tenants_are_told_in_turns_and_nothing_is_told_twice() -> None:
    counters = TokenCounters()
    for number in range(MOST_TENANTS + 3):
        counters.charge_input(f"t{number}", number + 1, 1.0)
    first, second, third = (counters.tell(set(), MOST_TENANTS) for _ in range(3))
    assert (len(first), len(second), len(third)) == (MOST_TENANTS, 3, 0)
    assert min(share.service for share in first.values()) > max(share.service for share in second.values())


def test_counters_of_tenants_that_only_others_serve_are_bounded() -> None:
    now = [0.0]
    counters = TokenCounters(most_idle=10, clock=lambda: now[0])
    for number in range(100):
        counters.hear({f"t{number}": Share(1.0, False)}, 1.0)
    assert sum(bool(counters.of(f"t{number}")) for number in range(100)) <= 10
