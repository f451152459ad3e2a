"""Pinned pages: they stay when pages run short, except against a request that would not fit otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from outrider.engine.decode.engine import Engine
from outrider.engine.pages.page_names import chain_hashes
from outrider.engine.pages.page_table import PageTable
from outrider.engine.requests.output import Finish, Usage
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.engine.scheduling.pins import Pins

from tests.engine.engines import MakeEngine

PROMPT = [index * 7 % 50 for index in range(40)]


def published(table: PageTable, names: str) -> list[bytes]:
    chain, pages = [name.encode() for name in names], list[int]()
    for name in chain:
        pages.append(table.allocate(pages[-1] if pages else None))
        table.publish(pages[-1], name)
    table.release(pages)
    return chain


def test_pins_hold_whole_chains_up_to_their_share() -> None:
    table = PageTable(8)
    pins, first = Pins(table, 3), published(table, "abc")
    assert not pins.hold("one", [*first, b"missing"])
    assert pins.hold("one", first)
    assert pins.hold("same", first[:2]), "pages that are pinned already take no room"
    assert not pins.hold("two", published(table, "d"))
    assert (pins.count, table.available) == (3, 5)
    assert pins.hold("one", first[:1]), "in place of what was held"
    assert pins.hold("two", published(table, "d"))
    pins.drop("same")
    pins.drop("unknown")
    table.check(pins.held)
    assert pins.yield_one()
    assert pins.names == ["one"]
    assert (pins.yield_one(), pins.yield_one(), pins.yielded) == (True, False, 2)
    table.check([])


def ask(engine: Engine, name: str, prompt: Sequence[int], answer: int = 4, tenant: str = "t") -> tuple[list[int], int]:
    """Tokens of the answer, and the number of prompt tokens found in pages."""
    engine.submit(Request(name, tenant, list(prompt), Sampling(1.0, seed=3), answer))
    tokens: list[int] = []
    usage: Usage | None = None
    while engine.busy or engine.has_news:
        for _, frame in engine.step().outputs:
            tokens += frame.tokens
            usage = frame.usage or usage
            assert frame.finish in (None, Finish.LENGTH)
    assert usage is not None
    return tokens, usage.cached_tokens


def others(engine: Engine) -> None:
    """Requests that need all available pages."""
    for number in range(4):
        ask(engine, f"other-{number}", [(number + 3 * index) % 50 for index in range(90)])


def pin(engine: Engine, prompt: Sequence[int], tenant: str = "t") -> bool:
    return engine.scheduler.pins.hold(f"{tenant}.p", chain_hashes(b"toy", tenant, prompt, 8))


def test_pinned_pages_survive_pressure_and_answers_are_the_same(make_engine: MakeEngine) -> None:
    plain = make_engine(pages=256)
    expected = ask(plain, "a", [*PROMPT, 1, 2])[0]
    engine = make_engine(pages=20, pinned=10)
    ask(engine, "warm", PROMPT, 0)
    assert pin(engine, PROMPT)
    others(engine)
    assert engine.scheduler.pages.evictions["sequence"] > 0
    assert ask(engine, "b", [*PROMPT, 1, 2]) == (expected, 40)
    engine.scheduler.pins.drop("t.p")
    others(engine)
    assert ask(engine, "c", [*PROMPT, 1, 2]) == (expected, 0), "evicted, and computed anew"


def test_pages_of_one_tenant_are_not_pinned_for_another(make_engine: MakeEngine) -> None:
    engine = make_engine(pages=20, pinned=10)
    ask(engine, "warm", PROMPT, 0)
    assert not pin(engine, PROMPT, "u")
    assert pin(engine, PROMPT)
    assert ask(engine, "b", [*PROMPT, 1, 2], tenant="u")[1] == 0


@pytest.mark.parametrize("tokens", [70, 150])
def test_a_request_that_fits_into_all_pages_alone_is_served_whatever_is_pinned(
    make_engine: MakeEngine, tokens: int
) -> None:
    engine = make_engine(pages=20, pinned=10)
    ask(engine, "warm", PROMPT, 0)
    assert pin(engine, PROMPT)
    prompt = [index * 3 % 50 for index in range(tokens)]
    expected = ask(make_engine(pages=256), "a", prompt, 8)[0]
    assert ask(engine, "a", prompt, 8)[0] == expected
    assert bool(engine.scheduler.pins.names) == (tokens == 70)


def test_running_requests_are_preempted_before_pins_yield(make_engine: MakeEngine) -> None:
    engine = make_engine(pages=20, pinned=10)
    ask(engine, "warm", PROMPT, 0)
    assert pin(engine, PROMPT)
    for number in range(3):
        prompt = [(number + 5 * index) % 50 for index in range(30)]
        engine.submit(Request(f"r{number}", "t", prompt, Sampling(1.0, seed=number), 60))
    while engine.busy:
        engine.step()
    assert engine.scheduler.preempted > 0
    assert engine.scheduler.pins.names == ["t.p"]


def test_a_request_for_no_tokens_says_nothing_of_the_length_of_answers(make_engine: MakeEngine) -> None:
    engine = make_engine()
    ask(engine, "warm", PROMPT, 0)
    engine.submit(Request("a", "t", PROMPT, Sampling(1.0, seed=3), 100, stop_ids=frozenset({49})))
    queued = engine.submit(Request("b", "t", PROMPT, Sampling(1.0, seed=3), 100, stop_ids=frozenset({49})))
    assert queued.ahead == 1
    running = next(iter(engine.scheduler.waiting))
    assert engine.estimate.answer(running) > 50 * engine.estimate.token_s
