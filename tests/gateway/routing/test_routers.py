"""Routers: the contract of all, and the ranking of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from outrider.engine.pages.page_names import chain_hashes
from outrider.gateway.admission.caller import Caller, OwnedLimits
from outrider.gateway.routing import GROUP, Ask, Replica, Router, VerifierSelection
from outrider.gateway.routing.cost import Cost
from outrider.gateway.routing.health import Breakers
from outrider.gateway.routing.least_load import LeastLoad
from outrider.gateway.routing.page_map import PageMap
from outrider.gateway.routing.prefix import Backlog, Prefix
from outrider.gateway.routing.round_robin import RoundRobin
from outrider.gateway.routing.sticky import Sticky
from outrider.gateway.settings import GatewaySettings
from outrider.mesh import plugins
from outrider.mesh.errors import ConfigError, Unavailable
from outrider.mesh.registry import Member, State
from outrider.wire.tenants import Limits

OWN: dict[str, Any] = {"least_load": LeastLoad, "prefix": Prefix, "cost": Cost, "round_robin": RoundRobin}
ROUTERS = OWN | plugins.available(GROUP)
EVERY = pytest.mark.parametrize("name", sorted(ROUTERS))


def replicas(loads: Mapping[str, int], **status: Any) -> list[Replica]:
    return [Replica(name, load, status) for name, load in loads.items()]


def names(ranked: Sequence[Replica]) -> list[str]:
    return [replica.instance for replica in ranked]


def ask(prompt: Sequence[int], session: str = "", tenant: str = "t") -> Ask:
    return Ask(tenant, prompt, 16, session)


@EVERY
def test_a_router_ranks_all_replicas_and_invents_none(name: str) -> None:
    router: Router = ROUTERS[name]({})
    assert router.choose(ask([1]), []) == []
    for loads in ({"a": 0}, {"a": 3, "b": 0, "c": 900}):
        for prompt in ([1], list(range(100))):
            there = replicas(loads)
            ranked = router.choose(ask(prompt), there)
            assert sorted(names(ranked)) == sorted(loads)
            assert there == replicas(loads), "what was given is left as it was"
            router.sent(ask(prompt), ranked[0].instance)
            router.sent(ask(prompt), "gone")


@EVERY
def test_a_router_does_not_pile_everything_on_one_replica(name: str) -> None:
    router: Router = ROUTERS[name]({})
    loads = Counter({"a": 0, "b": 0, "c": 0})
    for _ in range(300):
        first = router.choose(ask(list(range(64))), replicas(loads))[0].instance
        router.sent(ask(list(range(64))), first)
        loads[first] += 1
    assert max(loads.values()) - min(loads.values()) <= 10


@EVERY
def test_a_router_refuses_options_that_it_does_not_know(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"router_options of {name}: .*speed"):
        ROUTERS[name]({"speed": 1})


def test_least_load_asks_the_least_loaded_first() -> None:
    assert names(LeastLoad({}).choose(ask([1]), replicas({"a": 2, "b": 0, "c": 1}))) == ["b", "c", "a"]


def test_cost_weighs_load_by_what_a_verifier_costs() -> None:
    dear, cheap = Replica("dear", 1, {"cost": 3.0}), Replica("cheap", 4, {"cost": 1.0})
    assert names(Cost({}).choose(ask([1]), [dear, cheap])) == ["cheap", "dear"]
    assert names(Cost({}).choose(ask([1]), [dear, Replica("cheap", 6, {"cost": 1.0})])) == ["dear", "cheap"]
    assert names(Cost({"costs": {"dear": 2}}).choose(ask([1]), [dear, cheap])) == ["dear", "cheap"]
    with pytest.raises(ConfigError, match="costs"):
        Cost({"costs": {"dear": 0}})


def test_prefix_sends_a_prompt_to_where_most_of_its_beginning_is() -> None:
    router = Prefix({"page_tokens": 4})
    prompt = list(range(40))
    router.sent(ask(prompt[:12]), "b")
    router.sent(ask(prompt[:24]), "c")
    there = replicas({"a": 0, "b": 1, "c": 2})
    assert names(router.choose(ask(prompt), there)) == ["c", "b", "a"]
    assert names(router.choose(ask(prompt[:14]), there)) == ["b", "c", "a"], "of equal beginnings, by load"
    assert names(router.choose(ask([7, *prompt]), there)) == ["a", "b", "c"], "one token moves all pages"
    assert names(router.choose(ask(prompt, tenant="other"), there)) == ["a", "b", "c"]


def test_prefix_lets_no_verifier_run_further_ahead_than_it_is_told() -> None:
    router = Prefix({"imbalance": 2})
    router.sent(ask(list(range(64))), "a")
    assert names(router.choose(ask(list(range(64))), replicas({"a": 2, "b": 0}))) == ["a", "b"]
    assert names(router.choose(ask(list(range(64))), replicas({"a": 3, "b": 0}))) == ["b", "a"]


RATES = {"prefill_tokens_per_s": 1000, "tokens_per_s": 100, "queue_ms": 0, "page_size": 8, "vocabulary": "v"}


def test_prefix_weighs_the_tokens_that_are_found_against_the_wait_by_what_verifiers_tell() -> None:
    router, prompt = Prefix({}), list(range(200))
    router.sent(ask(prompt), "gone")
    router.choose(first := ask(prompt[:160]), [Replica("a", 0, RATES)])
    router.sent(first, "a")
    waits = {wait: Replica("a", 0, RATES | {"queue_ms": wait}) for wait in (310, 330)}
    router.backlog = Backlog()
    ranked = {wait: names(router.choose(ask(prompt), [a, Replica("b", 0, RATES)])) for wait, a in waits.items()}
    assert ranked == {310: ["a", "b"], 330: ["b", "a"]}
    assert names(router.choose(ask(prompt), [waits[330], Replica("b", 0, RATES | {"queue_ms": 20})])) == ["a", "b"]
    assert names(router.choose(ask(prompt, tenant="u"), [waits[310], Replica("b", 0, RATES)])) == ["b", "a"]
    other = Replica("a", 0, RATES | {"page_size": 16})
    assert names(router.choose(ask(prompt), [other, Replica("b", 0, RATES | {"queue_ms": 1})])) == ["a", "b"]


def test_a_prefix_that_many_ask_for_at_once_is_computed_at_another_verifier_too() -> None:
    clock, router, shared = Clock(), Prefix({"imbalance": 1000}), list(range(400))
    router.backlog = Backlog(clock)
    there = [Replica(name, 0, RATES) for name in "ab"]

    def send(number: int) -> str:
        asked = ask([*shared, *range(1000 + 100 * number, 1100 + 100 * number)])
        first = router.choose(asked, there)[0].instance
        router.sent(asked, first)
        return first

    burst = [send(number) for number in range(30)]
    assert burst[1:4] == [burst[0]] * 3, "computing it elsewhere would take longer"
    assert {*burst} == {"a", "b"}
    assert 4 <= burst[-10:].count("a") <= 6, "and then both have it"
    clock.now += 1000.0
    assert send(20) in "ab"


def test_a_backlog_is_what_was_told_or_what_was_sent_and_is_worked_off() -> None:
    clock = Clock()
    backlog, status = Backlog(clock), {"queue_ms": 1000}
    backlog.add("a", 2.0)
    clock.now += 1.5
    assert (backlog.seconds("a"), backlog.seconds("b")) == (0.5, 0.0)
    backlog.add("a", 2.0)
    backlog.report("a", status, 1.0)
    assert backlog.seconds("a") == 2.5
    clock.now += 3.0
    assert backlog.seconds("a") == 0.0
    backlog.report("a", status, 1.0)
    assert backlog.seconds("a") == 0.0, "it is the same announcement still"
    backlog.report("a", dict(status), 1.0)
    assert backlog.seconds("a") == 1.0


def test_round_robin_takes_verifiers_in_turns() -> None:
    router, there = RoundRobin({}), replicas({"a": 9, "b": 0, "c": 3})
    firsts = [router.choose(ask([1]), there)[0].instance for _ in range(6)]
    assert sorted(firsts[:3]) == ["a", "b", "c"]
    assert firsts[3:] == firsts[:3]


def test_pages_can_be_corrected_and_are_bounded() -> None:
    pages, chain = PageMap(3), chain_hashes(b"v", "t", list(range(20)), 4)
    pages.add("a", chain)
    assert [pages.leading("a", chain[start:]) for start in range(5)] == [0, 0, 3, 2, 1]
    pages.drop("a", chain[4:])
    assert [pages.leading("a", chain[start:]) for start in range(5)] == [0, 0, 2, 1, 0]
    pages.drop("b", chain)
    pages.replace("a", chain[:1])
    pages.add("b", chain[:2])
    assert ([pages.leading(name, chain) for name in "ab"], len(pages)) == ([1, 2], 2)
    pages.forget("b")
    assert (pages.of("a"), pages.of("b"), len(pages)) == ({chain[0]}, frozenset(), 1)


def test_a_session_stays_where_it_is_while_others_come_and_go() -> None:
    router = Sticky(LeastLoad({}), 8)
    asked = [ask([1], f"s{number}") for number in range(60)]
    loads = {"a": 0, "b": 3, "c": 5}
    before = {each.session: router.choose(each, replicas(loads))[0].instance for each in asked}
    assert set(before.values()) == set(loads)
    more = {each.session: router.choose(each, replicas(loads | {"d": 0}))[0].instance for each in asked}
    moved = {more[session] for session in before if more[session] != before[session]}
    assert moved == {"d"}
    assert names(router.choose(ask([1]), replicas(loads))) == ["a", "b", "c"], "no session, no home"


def test_a_session_leaves_a_verifier_that_is_crowded() -> None:
    router = Sticky(LeastLoad({}), 8)
    home = router.choose(ask([1], "s"), replicas({"a": 0, "b": 0}))[0].instance
    loads = {"a": 0, "b": 0} | {home: 9}
    assert router.choose(ask([1], "s"), replicas(loads))[0].instance != home


def test_sessions_are_an_option_of_every_router() -> None:
    members = [Member("verifier", name, "", State.READY, {}) for name in "abc"]
    selection = VerifierSelection(GatewaySettings(router="prefix", router_options={"sticky": True, "imbalance": 2}))
    firsts = {selection.order(ask([1], "s"), members, lambda member: 0)[0].instance for _ in range(20)}
    assert len(firsts) == 1
    with pytest.raises(ConfigError, match=r"no 'best' among outrider.routers: there are .*least_load"):
        VerifierSelection(GatewaySettings(router="best"))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_breaker_opens_after_failures_in_a_row_and_is_probed_by_one_request_at_a_time() -> None:
    clock = Clock()
    breakers = Breakers(2, 5.0, clock)
    breakers.note_failure("a")
    breakers.note_answer("a")
    breakers.note_failure("a")
    assert breakers.order(["a", "b"]) == ["a", "b"], "the failures were not in a row"
    breakers.note_failure("a")
    assert breakers.order(["a", "b"]) == ["b", "a"], "last, and there all the same"
    clock.now += 5.0
    assert breakers.order(["a", "b"]) == ["a", "b"]
    breakers.note_request("a")
    assert breakers.order(["a", "b"]) == ["b", "a"], "one probe is enough"
    breakers.note_failure("a")
    assert breakers.order(["a", "b"]) == ["b", "a"]
    clock.now += 5.0
    breakers.note_request("a")
    breakers.note_cancellation("a")
    assert breakers.order(["a", "b"]) == ["a", "b"], "a probe whose client left says nothing"
    breakers.note_request("a")
    breakers.note_answer("a")
    assert breakers.order(["a", "b"]) == ["a", "b"]
    breakers.note_failure("a")
    assert breakers.order(["a", "b"]) == ["a", "b"]


def test_a_breaker_outlives_a_short_absence_and_no_long_one() -> None:
    clock = Clock()
    breakers = Breakers(1, 5.0, clock)
    breakers.note_failure("a")
    breakers.keep(["b"])
    assert breakers.order(["a", "b"]) == ["b", "a"]
    clock.now += 601.0
    breakers.keep(["a"])
    breakers.note_request("a")
    assert breakers.order(["a", "b"]) == ["b", "a"], "who is there is kept"
    breakers.keep([])
    assert breakers.order(["a", "b"]) == ["a", "b"]


def test_who_does_not_answer_is_asked_after_all_others_and_who_was_just_left_after_that() -> None:
    members = [Member("verifier", name, "", State.READY, {}) for name in "abc"]
    selection = VerifierSelection(GatewaySettings(breaker_failures=1))
    selection.breakers.note_failure("a")
    order = selection.order(ask([1]), members, lambda member: ord(member.instance), avoid={"b"})
    assert [member.instance for member in order] == ["c", "a", "b"]


def test_only_verifiers_of_an_allowed_residency_are_asked_and_none_is_an_error_that_names_it() -> None:
    tags = {"a": {"residency": "eu"}, "b": {"residency": "us"}, "c": {}}
    members = [Member("verifier", name, "", State.READY, tag) for name, tag in tags.items()]
    selection = VerifierSelection(GatewaySettings())

    def order(*residency: str) -> set[str]:
        asked = Ask("t", [1], 16, "", frozenset(residency))
        return {member.instance for member in selection.order(asked, members, lambda member: 0)}

    assert order("eu") == {"a"}
    assert order("us", "eu") == {"a", "b"}
    assert len(selection.order(ask([1]), members, lambda member: 0)) == 3
    with pytest.raises(Unavailable, match="residency apac, me"):
        order("me", "apac")


def test_tenant_and_key_both_have_to_allow_a_residency() -> None:
    def caller(tenant: tuple[str, ...] | None, key: tuple[str, ...] | None) -> Caller:
        owned = [OwnedLimits("", "", Limits(residency=tags)) for tags in (tenant, key)]
        return Caller("t", tuple(owned))

    assert caller(None, None).residency is None
    assert caller(("eu", "us"), None).residency == {"eu", "us"}
    assert caller(("eu", "us"), ("us", "apac")).residency == {"us"}
    assert caller(("eu",), ("us",)).residency == frozenset()
