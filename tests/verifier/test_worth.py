"""Drafters whose guesses do not pay are left alone and tried again; the others are always asked."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

import pytest
from outrider.models.sampling import Sampling
from outrider.models.speculation import DraftTree, Opening
from outrider.verifier import guessing
from outrider.verifier.book import Prices, Yield
from outrider.verifier.engine import Engine
from outrider.verifier.runner import Drawn, Runner, Work
from outrider.verifier.sequence import Request
from outrider.verifier.worth import Patience, Regime, Worth

from tests.verifier.conftest import MakeEngine
from tests.verifier.drafters import EverythingDrafter

ONE, MANY = Regime.of([True]), Regime.of([False] * 9)
PRICES = Prices(token=1.0, row=0.1, step=1.0)
GOOD, BAD, SLOW = Yield(8, 2, 0.0), Yield(8, 0, 0.0), Yield(4, 1, 2.0)


def quiet_steps(worth: Worth, done: Yield, steps: int) -> list[bool]:
    """Whether the drafter was left alone, step by step."""
    found = []
    for _ in range(steps):
        worth.step(ONE, {"d": done}, PRICES)
        found.append("d" in worth.quiet(ONE))
    return found


def test_a_drafter_that_pays_is_asked_but_for_a_few_steps_that_show_what_plain_decoding_takes() -> None:
    quiet = quiet_steps(Worth(), GOOD, 8000)
    assert not any(quiet[:20])
    assert 0.001 < sum(quiet) / len(quiet) < 0.02


def test_steps_are_plain_once_nobody_is_asked_for_a_while() -> None:
    worth, plain = Worth(), []
    for _ in range(600):
        plain.append(worth.is_plain(ONE, frozenset({"d"})))
        worth.step(ONE, {"d": GOOD}, PRICES)
    first = plain.index(True, 1)
    assert 10 < sum(plain[1:]) < 30
    assert all(plain[first : first + sum(plain[1:])])
    assert worth.is_plain(ONE, frozenset({"another"}))


def test_what_pays_for_one_kind_of_step_is_judged_anew_for_another() -> None:
    worth = Worth()
    quiet_steps(worth, BAD, 200)
    assert worth.quiet(ONE) == {"d"}
    assert not worth.quiet(MANY)


def test_what_does_not_pay_for_few_sequences_rests_first_for_more() -> None:
    worth, more, fewer = Worth(), Regime.of([True] * 9), Regime.of([True] * 3)
    worth.step(ONE, {"d": GOOD, "e": GOOD}, PRICES)
    for _ in range(200):
        worth.step(fewer, {"d": GOOD, "e": BAD}, PRICES)
    worth.step(more, {"d": GOOD, "e": GOOD}, PRICES)
    assert worth.quiet(more) == {"e"}
    assert not worth.quiet(ONE)
    for _ in range(1200):
        worth.step(more, {"d": GOOD, "e": GOOD}, PRICES)
    assert not worth.quiet(more)


@pytest.mark.parametrize(("drafting", "rests"), [(0.1, False), (0.5, True)])
def test_what_each_sequence_costs_tells_beforehand_whether_it_pays_for_more(drafting: float, rests: bool) -> None:
    worth, eight = Worth(), Prices(token=0.2, row=0.05, step=1.6, sequences=8)
    for _ in range(100):
        worth.step(ONE, {"d": Yield(4, 2, drafting)}, PRICES)
    assert not worth.quiet(ONE)
    worth.step(Regime.of([True] * 8), {"d": Yield()}, eight)
    assert worth.quiet(Regime.of([True] * 8)) == ({"d"} if rests else set())


@pytest.mark.parametrize("done", [BAD, SLOW, Yield()])
def test_one_that_does_not_is_tried_now_and_then_and_seldomer_each_time(done: Yield) -> None:
    quiet = quiet_steps(Worth(), done, 6000)
    tries = [step for step in range(1, 6000) if quiet[step - 1] and not quiet[step]]
    gaps = [after - before for before, after in itertools.pairwise(tries)]
    assert quiet.index(True) < 60
    assert len(tries) >= 3
    assert [gap for gap in gaps if gap > 100] == sorted(gap for gap in gaps if gap > 100)
    assert sum(quiet) > 0.9 * len(quiet)


@pytest.mark.parametrize(("drafting", "least", "most"), [(0.1, 384, 420), (9.0, 900, 1200)])
def test_what_a_trial_lost_has_to_be_little_beside_the_time_until_the_next(
    drafting: float, least: int, most: int
) -> None:
    worth, quiet = Worth(), []
    for _ in range(1400):
        worth.step(ONE, {"d": Yield(0, 0, drafting)}, Prices(token=1.0, row=0.1, step=10.0))
        quiet.append("d" in worth.quiet(ONE))
    began = quiet.index(True)
    assert least <= quiet.index(False, began) - began < most


@pytest.mark.parametrize("done", [GOOD, BAD])
def test_steps_in_which_nobody_is_asked_count_however_they_are_told(done: Yield) -> None:
    told, idle = Worth(), Worth()
    assert not idle.idle(ONE, 1.0)
    for _ in range(6000):
        if "d" in told.quiet(ONE):
            told.step(ONE, {}, PRICES)
            assert idle.idle(ONE, PRICES.step)
        else:
            told.step(ONE, {"d": done}, PRICES)
            idle.step(ONE, {"d": done}, PRICES)
        assert idle.quiet(ONE) == told.quiet(ONE)
    assert idle == told


def test_one_that_has_become_good_is_asked_again_for_good() -> None:
    worth = Worth()
    quiet_steps(worth, BAD, 200)
    assert "d" in worth.quiet(ONE)
    assert sum(quiet_steps(worth, GOOD, 3000)[1000:]) < 100


def test_one_that_was_held_up_once_is_not_left_alone_for_it() -> None:
    worth, quiet = Worth(), []
    for step in range(300):
        worth.step(ONE, {"d": Yield(8, 2, 50.0 if step % 40 == 20 else 0.1)}, PRICES)
        quiet.append("d" in worth.quiet(ONE))
    assert sum(quiet) < 30


def test_of_many_sequences_a_few_are_enough_to_see_that_it_does_not_pay() -> None:
    worth, asked_all = Worth(), 0
    prices = Prices(token=1.0, row=0.1, step=9.0, sequences=9)
    for _ in range(2000):
        few = worth.tries_few(MANY, "d")
        asked_all += not few and not worth.quiet(MANY)
        worth.step(MANY, {"d": Yield(4, 0, 1.0, part=0.25) if few else Yield(16, 0, 4.0)}, prices)
    assert "d" in worth.quiet(MANY)
    assert asked_all == 0
    assert not Worth().tries_few(ONE, "d")
    assert not Patience().tries_few(MANY, "d")


def test_all_sequences_follow_where_it_pays_for_a_few_of_them() -> None:
    worth, few = Worth(), []
    prices = Prices(token=1.0, row=0.1, step=9.0, sequences=9)
    for _ in range(300):
        few.append(worth.tries_few(MANY, "d"))
        worth.step(MANY, {"d": Yield(4, 2, 0.1, part=0.25) if few[-1] else Yield(16, 8, 0.4)}, prices)
    assert 10 < few.index(False) < 40
    assert not any(few[few.index(False) :])


def test_what_pays_for_fewer_sequences_is_asked_about_all_of_more_at_once() -> None:
    worth = Worth()
    for _ in range(100):
        worth.step(Regime.of([False] * 3), {"d": GOOD}, PRICES)
    worth.step(MANY, {"d": GOOD, "new": GOOD}, PRICES)
    assert not worth.tries_few(MANY, "d")
    assert worth.tries_few(MANY, "new")


class Clock:
    """The time as the engine sees it: only what a test spends goes by, however slow the machine is."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        """Lets time go by."""
        self.now += seconds


CLOCK = Clock()


@pytest.fixture
def step_s() -> float:
    """Seconds that the target takes for a step."""
    return 0.001


@pytest.fixture(autouse=True)
def told_time(monkeypatch: pytest.MonkeyPatch, step_s: float) -> None:
    """The engine reads `CLOCK`."""
    run = Runner.run

    def spending(self: Runner, works: Sequence[Work]) -> list[Drawn]:
        CLOCK.spend(step_s)
        return run(self, works)

    monkeypatch.setattr(Runner, "run", spending)
    monkeypatch.setattr(guessing, "perf_counter", CLOCK)
    monkeypatch.setattr(time, "perf_counter", CLOCK)


class Slow(EverythingDrafter):
    """Takes its time, for all guesses there are or for none."""

    name = "slow"

    pause = 0.002

    def __init__(self, vocabulary: int, right: bool) -> None:
        super().__init__(vocabulary if right else 0, 1)
        self.calls = 0
        self.openings: list[Opening] = []

    def open(self, session: int, opening: Opening) -> None:
        super().open(session, opening)
        self.openings.append(opening)

    def draft(self) -> list[tuple[int, DraftTree]]:
        self.calls += 1
        CLOCK.spend(self.pause)
        return super().draft()


def answer(engine: Engine, names: Sequence[str]) -> dict[str, list[int]]:
    said: dict[str, list[int]] = {}
    for name in names:
        engine.submit(Request(name, "t", [1, 2, 3], Sampling(1.0, seed=len(said)), 240))
        while engine.busy:
            for request, frame in engine.step().frames:
                said.setdefault(request.id, []).extend(frame.tokens)
    return said


def test_the_engine_leaves_a_drafter_alone_that_only_costs_time(make_engine: MakeEngine) -> None:
    slow, names = Slow(50, right=False), ["a", "b", "c"]
    engine = make_engine(50, [slow], judged=True)
    said = answer(engine, names)
    assert engine.tally.steps > 600
    assert 5 < slow.calls < 60
    assert engine.guessing.quiet == {"slow"}
    assert said == answer(make_engine(50), names)


@pytest.mark.parametrize("step_s", [0.004])
def test_the_engine_goes_on_asking_a_drafter_that_saves_more_time_than_it_takes(make_engine: MakeEngine) -> None:
    right = Slow(50, right=True)
    right.pause = 0.0002
    engine = make_engine(50, [right], judged=True)
    answer(engine, ["a", "b"])
    assert right.calls > 0.8 * engine.tally.steps


class Sparing(Slow):
    """Notes of how many sequences it is asked about."""

    def __init__(self, vocabulary: int, right: bool) -> None:
        super().__init__(vocabulary, right)
        self.asked: list[int] = []
        self.pause = 0.0 if right else self.pause

    def draft(self) -> list[tuple[int, DraftTree]]:
        self.asked.append(0)
        return super().draft()

    def draft_few(self, sessions: int) -> list[tuple[int, DraftTree]]:
        self.asked.append(sessions)
        return [found for found in super().draft() if found[0] <= sessions]


@pytest.mark.parametrize("step_s", [0.004])
@pytest.mark.parametrize("right", [False, True])
def test_the_engine_tries_a_drafter_on_a_few_of_many_sequences(make_engine: MakeEngine, right: bool) -> None:
    sparing = Sparing(50, right)
    engine = make_engine(50, [sparing], judged=True, running=16)
    for number in range(16):
        engine.submit(Request(str(number), "t", [1, 2, 3], Sampling(1.0, seed=number), 120))
    while engine.load == 16:
        engine.step()
    assert sparing.asked[1:5] == [4] * 4
    assert (0 in sparing.asked) == right


def test_a_dear_drafter_is_left_alone_that_guesses_what_a_cheap_one_does(make_engine: MakeEngine) -> None:
    cheap, dear = EverythingDrafter(50, 1), Slow(50, right=True)
    engine = make_engine(50, [dear, cheap], judged=True)
    answer(engine, ["a", "b", "c"])
    assert engine.guessing.quiet == {"slow"}
    assert engine.tally.accepted[cheap.name] > 100


def test_a_drafter_is_not_judged_by_requests_that_do_not_admit_it(make_engine: MakeEngine) -> None:
    slow = Slow(50, right=False)
    engine = make_engine(50, [slow], judged=True)
    engine.submit(Request("a", "t", [1, 2, 3], Sampling(), 200, drafters=frozenset({"another"})))
    while engine.busy:
        engine.step()
    assert not engine.guessing.quiet
    assert slow.openings == []


def test_drafters_are_told_whose_request_it_is_and_where_its_prompt_ends(make_engine: MakeEngine) -> None:
    slow = Slow(50, right=True)
    engine = make_engine(50, [slow], judged=True)
    engine.submit(Request("a", "red", [1, 2, 3], Sampling(), 6, emitted=[4, 5]))
    [opening] = slow.openings
    assert (list(opening.tokens), opening.tenant, opening.prompt) == ([1, 2, 3, 4, 5], "red", 3)


class Told(Slow):
    """Notes what it is told of sequences."""

    name = "told"

    def __init__(self) -> None:
        super().__init__(50, right=False)
        self.commits = 0
        self.texts: dict[int, list[int]] = {}

    def open(self, session: int, opening: Opening) -> None:
        super().open(session, opening)
        self.texts[session] = list(opening.tokens)

    def commit(self, session: int, length: int, tokens: Sequence[int]) -> None:
        super().commit(session, length, tokens)
        self.commits += 1
        assert length == len(self.texts[session])
        self.texts[session].extend(tokens)


def test_a_drafter_that_rests_is_told_all_at_once_what_was_decided_meanwhile(make_engine: MakeEngine) -> None:
    told = Told()
    engine = make_engine(50, [told], judged=True)
    said = answer(engine, ["a", "b", "c"])
    assert 3 <= told.commits < 0.3 * engine.tally.steps
    assert [text[3:] for text in told.texts.values()] == list(said.values())


@pytest.mark.parametrize("step_s", [0.004])
def test_a_drafter_that_rests_is_left_alone_beside_prompts_too(make_engine: MakeEngine) -> None:
    slow = Slow(50, right=False)
    engine = make_engine(50, [slow], judged=True, running=8)
    calls = []
    for batch in range(2):
        for number in range(8):
            prompt = [1 + (number + place) % 40 for place in range(40)]
            engine.submit(Request(f"{batch} {number}", "t", prompt, Sampling(1.0, seed=number), 12 + number))
        while engine.busy:
            engine.step()
        calls.append(slow.calls)
    assert 0 < calls[0] == calls[1]
