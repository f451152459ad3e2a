"""Versions of drafters change in mid-stream: no token changes, and one that makes tokens slower is given up."""

from __future__ import annotations

import gc
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from outrider.engine.decode.engine import Engine
from outrider.engine.models.llama import LlamaModel
from outrider.engine.requests.parameters import Speculation
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.engine.speculation import Drafter, DrafterContext, Opening
from outrider.engine.speculation.drafters.drafter import make_drafter
from outrider.engine.speculation.drafters.ngram_drafter import NgramDrafter
from outrider.engine.speculation.drafters.trained.head_drafter import HeadDrafter

from tests.engine.drafters import STEP_S, Clock, Named, Timed, Watcher
from tests.engine.engines import (
    VOCABULARY,
    MakeEngine,
    bought_guesses,
    preemptions,
    random_drafter,
    request,
    requests,
    said,
)
from tests.engine.speculation.heads.published import Published, dspark, eagle3
from tests.toy_model import save_toy


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> LlamaModel:
    return LlamaModel.load(save_toy(tmp_path_factory.mktemp("models") / "toy", VOCABULARY), dtype="float32")


def head(published: Published, folder: Path, target: LlamaModel) -> Drafter:
    where, options = published.save(folder), {"nodes": 16}
    context = DrafterContext("v", VOCABULARY, 256, where, options=options, target=target, config=target.config)
    return make_drafter(HeadDrafter, "head", context)


def ngram(most: int) -> Drafter:
    return NgramDrafter(DrafterContext("v", VOCABULARY, 256, options={"most": most}))


def answers(engine: Engine, wanted: Sequence[Request], before: Callable[[int], None]) -> dict[str, list[int]]:
    """Answers to ``wanted``; ``before`` is called before each step, with its number."""
    for each in wanted:
        engine.submit(each)
    found: dict[str, list[int]] = defaultdict(list)
    steps = 0
    while engine.busy:
        before(steps)
        steps += 1
        for each, output in engine.step().outputs:
            found[each.id] += output.tokens
    return dict(found)


def test_twenty_swaps_under_many_streams_change_no_token(
    make_engine: MakeEngine, toy: LlamaModel, tmp_path: Path
) -> None:
    wanted = requests(12, 60, seed=3)
    assert {each.sampling.greedy for each in wanted} == {True, False}
    plain = said(make_engine(), wanted)
    versions: list[tuple[str, Drafter | None]] = []
    for number in range(4):
        versions += [
            ("head", head(eagle3(), tmp_path / f"eagle-{number}", toy)),
            ("random", random_drafter()),
            ("head", head(dspark(), tmp_path / f"block-{number}", toy)),
            ("ngram", ngram(3 + number)),
            ("head", None) if number % 2 else ("random", random_drafter()),
        ]
    kept = [weakref.ref(drafter) for _, drafter in versions if drafter is not None]
    engine = make_engine(drafters=[random_drafter(), ngram(4)], guesses=48, prefill_rows=32)
    running = []

    def swap(step: int) -> None:
        if step % 2 == 1 and versions:
            name, drafter = versions.pop(0)
            engine.swap(name, drafter, version="" if drafter is None else f"v{20 - len(versions)}")
            running.append(len(engine.scheduler.running))

    assert answers(engine, wanted, swap) == plain
    assert len(running) == 20
    assert min(running) >= 8
    bought = bought_guesses(engine)
    assert {"random", "head@v1", "random@v2", "head@v3", "ngram@v4", "head@v18", "ngram@v19"} < bought.keys()
    gc.collect()
    assert sum(made() is not None for made in kept) == 2, "versions that guess for nobody are let go"


@pytest.mark.parametrize("pages", [256, 26])
def test_a_version_that_takes_over_has_the_tokens_and_sees_the_states_from_there_on(
    make_engine: MakeEngine, pages: int
) -> None:
    first, second = (Watcher(VOCABULARY, 1, layers) for layers in ((0, 3), (1, 2)))
    engine = make_engine(drafters=[first], pages=pages, prefill_rows=8)
    wanted, lost = [request(f"r{number}", 20, 40) for number in range(6)], preemptions(engine)
    plain = said(make_engine(), wanted)

    def swap(step: int) -> None:
        if step == 18:
            engine.swap("watcher", second, version="v2")

    assert answers(engine, wanted, swap) == plain
    assert bool(lost) == (pages == 26)
    for watcher in (first, second):
        watcher.check(engine.runner.model)
    starts = set(second.first.values())
    assert max(starts) > 20, "some were in the middle of their answers"
    assert bought_guesses(engine)["watcher@v2"] > 0


def test_a_tenants_own_version_guesses_for_its_sequences_alone(make_engine: MakeEngine) -> None:
    models, newer, own = Named(VOCABULARY), Named(VOCABULARY), Named(VOCABULARY)
    engine = make_engine(drafters=[models])
    engine.swap("named", own, tenant="acme", version="acme/v1")
    wanted = [request(f"{tenant} {number}", 4, 30, tenant) for tenant in ("acme", "other") for number in range(3)]
    plain = said(make_engine(), wanted)

    def swap(step: int) -> None:
        if step == 5:
            engine.swap("named", newer, version="v2")
        if step == 12:
            engine.swap("named", None, tenant="acme")

    assert answers(engine, wanted, swap) == plain
    assert models.tenants == {"other"}
    assert own.tenants == {"acme"}
    assert newer.tenants == {"acme", "other"}
    behind = [len(opening.tokens) for opening in newer.openings]
    assert all(length > 4 for length in behind)
    assert bought_guesses(engine).keys() == {"named", "named@acme/v1", "named@v2"}


def test_a_request_that_names_the_drafter_has_all_its_versions_and_one_that_does_not_has_none(
    make_engine: MakeEngine,
) -> None:
    version = Named(VOCABULARY)
    engine = make_engine(drafters=[Named(VOCABULARY), ngram(4)])
    engine.swap("named", version, version="v2")
    for name, speculation in (("a", Speculation(drafters=("named",))), ("b", Speculation(drafters=("ngram",)))):
        said(engine, [request(name, 4, 12, name, speculation=speculation)])
    assert version.tenants == {"a"}


def test_what_a_tenant_had_of_its_own_is_gone_with_the_tenant(make_engine: MakeEngine) -> None:
    models, own = Named(VOCABULARY), Named(VOCABULARY)
    engine = make_engine(drafters=[models])
    engine.swap("named", own, tenant="acme", version="v1")
    engine.forget("acme", "the tenant was erased")
    said(engine, [request("a", 4, 12, "acme")])
    assert (own.tenants, models.tenants) == (set(), {"acme"})


class Broken(Named):
    """Cannot open the second sequence that it gets."""

    def open(self, session: int, opening: Opening) -> None:
        super().open(session, opening)
        if len(self.openings) == 2:
            raise RuntimeError("no memory")


def test_a_version_that_fails_as_it_takes_over_leaves_the_old_one(make_engine: MakeEngine) -> None:
    old = Named(VOCABULARY)
    engine, wanted = make_engine(drafters=[old]), [request(f"r{number}", 4, 30) for number in range(4)]
    plain = said(make_engine(), wanted)

    def swap(step: int) -> None:
        if step == 6:
            with pytest.raises(RuntimeError, match="no memory"):
                engine.swap("named", Broken(VOCABULARY), version="v2")

    assert answers(engine, wanted, swap) == plain
    assert bought_guesses(engine).keys() == {"named"}
    assert not engine.tally.guesses.changes


def timed(make_engine: MakeEngine, clock: Clock, drafter: Drafter) -> Engine:
    engine = make_engine(VOCABULARY, [drafter], judged=True, timer=clock)
    engine.runner.before = lambda: clock.spend(STEP_S)
    return engine


def answer(engine: Engine, count: int, tenant: str = "t", name: str = "r") -> None:
    for number in range(count):
        engine.submit(Request(f"{name} {number}", tenant, [1, 2, 3], Sampling(1.0, seed=number), 80))
        while engine.busy:
            engine.step()


@pytest.mark.parametrize(("seconds", "right"), [(0.0035, True), (0.0035, False)], ids=["slower", "wasteful"])
def test_a_version_that_makes_tokens_slower_is_given_up(make_engine: MakeEngine, seconds: float, right: bool) -> None:
    clock = Clock()
    old, bad = Timed(VOCABULARY, clock, 0.0002), Timed(VOCABULARY, clock, seconds, right=right)
    engine = timed(make_engine, clock, old)
    answer(engine, 10)
    engine.swap("timed", bad, version="v2")
    answer(engine, 11, name="later")
    assert engine.tally.guesses.changes == {("timed", "changed"): 1, ("timed", "rolled_back"): 1}
    [(given_up, why)] = [engine.guessing.fallen["timed", None]]
    assert given_up == "timed@v2"
    assert "tokens a second fell by" in why
    engine.swap("timed", old, version="", judged=False)
    assert not engine.guessing.fallen, "what is chosen on purpose is no verdict"
    opened = len(bad.openings)
    answer(engine, 2, name="last")
    assert len(bad.openings) == opened < 11
    assert not engine.guessing.paused


def test_an_equal_version_stays(make_engine: MakeEngine) -> None:
    clock = Clock()
    engine = timed(make_engine, clock, Timed(VOCABULARY, clock, 0.0002))
    answer(engine, 10)
    new = Timed(VOCABULARY, clock, 0.0003)
    engine.swap("timed", new, version="v2")
    answer(engine, 20, name="later")
    assert engine.tally.guesses.changes == {("timed", "changed"): 1}
    assert len(new.openings) == 20


def test_a_version_in_place_of_a_paused_one_may_be_paused_too(make_engine: MakeEngine) -> None:
    clock = Clock()
    engine = timed(make_engine, clock, Timed(VOCABULARY, clock, 0.004, right=False))
    answer(engine, 6)
    assert engine.guessing.paused == {"timed"}
    new = Timed(VOCABULARY, clock, 0.004, right=False)
    engine.swap("timed", new, version="v2")
    answer(engine, 8, name="later")
    assert engine.guessing.paused == {"timed@v2"}
    assert engine.tally.guesses.changes == {("timed", "changed"): 1}


def test_a_tenants_first_version_is_compared_with_what_that_tenant_had(make_engine: MakeEngine) -> None:
    clock = Clock()
    old, bad = Timed(VOCABULARY, clock, 0.0002), Timed(VOCABULARY, clock, 0.0035)
    engine = timed(make_engine, clock, old)
    for tenant in ("acme", "other"):
        answer(engine, 10, tenant, tenant)
    engine.swap("timed", bad, tenant="acme", version="acme/v1")
    for number in range(11):
        for tenant in ("acme", "other"):
            answer(engine, 1, tenant, f"{tenant} {number} later")
    assert engine.guessing.fallen.keys() == {("timed", "acme")}
    assert bad.tenants == {"acme"}
    engine.forget("acme", "the tenant was erased")
    assert not engine.guessing.fallen
    assert {opening.tenant for opening in old.openings[-2:]} == {"acme", "other"}
