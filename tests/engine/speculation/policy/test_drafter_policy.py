"""Drafters that lose time are paused and tried again; the others are always asked."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from outrider.engine.decode.engine import Engine
from outrider.engine.requests.parameters import Speculation
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.engine.speculation import Drafter, DraftTree, Opening
from outrider.engine.speculation.policy.drafter_policy import REGRET, DrafterPolicy, DrafterStep, StepPrices

from tests.engine.drafters import EverythingDrafter
from tests.engine.engines import MakeEngine, accepted_guesses

ONE, MANY = 1, 4
"""Sizes of steps: bits of the number of sequences."""
PRICES = StepPrices(token=1.0, row=0.1, step=1.0)
GOOD, BAD, SLOW = DrafterStep(8, 2, 0.0), DrafterStep(8, 0, 0.8), DrafterStep(4, 1, 2.0)
CHEAP, WRONG = DrafterStep(0, 0, 0.001), DrafterStep(8, 0, 0.001)


def asked_steps(policy: DrafterPolicy, done: DrafterStep, steps: int, others: bool = False) -> list[bool]:
    """Whether each step asked a drafter that does ``done`` in every step."""
    asked = []
    for _ in range(steps):
        asked.append("d" not in policy.paused(ONE, {"d"}))
        policy.step(ONE, {"d": done} if asked[-1] else {}, PRICES, others)
    return asked


@pytest.mark.parametrize("done", [GOOD, CHEAP, WRONG])
def test_a_drafter_that_pays_or_costs_next_to_nothing_is_always_asked(done: DrafterStep) -> None:
    assert all(asked_steps(DrafterPolicy(), done, 8000))


@pytest.mark.parametrize("done", [BAD, SLOW])
def test_trials_of_a_drafter_that_does_not_pay_lose_a_small_part_of_the_time(done: DrafterStep) -> None:
    asked = asked_steps(DrafterPolicy(), done, 20_000)
    lost = sum(asked) * (done.bought * PRICES.row + done.drafting - done.accepted * PRICES.token)
    assert 0.25 * REGRET < lost / len(asked) < 2 * REGRET
    assert asked.index(False) < 10
    assert any(asked[10:])


def test_trials_that_begin_with_long_prompts_lose_a_small_part_of_the_time() -> None:
    policy, waited, before = DrafterPolicy(), 0.0, False
    for _ in range(40_000):
        if asked := "d" not in policy.paused(ONE, {"d"}):
            done = DrafterStep(0, 0, 0.1, 0.0 if before else 20.0)
            waited += done.drafting + done.opening
        policy.step(ONE, {"d": done} if asked else {}, PRICES, others=False)
        before = asked
    assert 0.5 * REGRET < waited / 40_000 < 1.5 * REGRET


def test_a_long_prompt_is_paid_off_by_later_steps() -> None:
    policy = DrafterPolicy()
    for step in range(300):
        policy.step(ONE, {"d": DrafterStep(8, 2, 0.0, 80.0 if step == 60 else 0.0)}, PRICES, others=False)
        assert not policy.paused(ONE, {"d"})


def test_what_loses_little_is_tried_again_the_sooner() -> None:
    gaps = []
    for drafting in (0.02, 0.5):
        asked = asked_steps(DrafterPolicy(), DrafterStep(0, 0, drafting), 5000)
        first = asked.index(False)
        gaps.append(asked.index(True, first) - first)
    assert gaps[0] < 0.1 * gaps[1]


def test_a_drafter_is_judged_apart_for_steps_of_another_size() -> None:
    policy = DrafterPolicy()
    asked_steps(policy, BAD, 50)
    assert policy.paused(ONE, {"d"}) == {"d"}
    assert not policy.paused(MANY, {"d"})


def test_one_that_has_become_good_is_asked_again_for_good() -> None:
    policy = DrafterPolicy()
    assert not all(asked_steps(policy, BAD, 200))
    asked = asked_steps(policy, GOOD, 3000)
    assert all(asked[asked.index(True) :])


def test_one_that_was_held_up_once_is_not_paused_for_it() -> None:
    policy = DrafterPolicy()
    for step in range(300):
        policy.step(ONE, {"d": DrafterStep(8, 2, 50.0 if step % 40 == 20 else 0.1)}, PRICES, others=False)
        assert not policy.paused(ONE, {"d"})


def test_windows_show_what_steps_take_without_a_drafter_elsewhere_and_cost_little() -> None:
    policy, plain, asked = DrafterPolicy(), 0, 0
    for _ in range(60_000):
        plain += policy.is_plain(ONE, {"d"})
        chosen = {"d", "own"} - policy.paused(ONE, {"d", "own"})
        asked += chosen == {"d", "own"}
        assert chosen in (set(), {"d", "own"})
        policy.step(ONE, dict.fromkeys(chosen, GOOD), PRICES, others="d" in chosen)
    assert plain >= 12
    assert asked > 0.98 * 60_000


def test_there_are_no_windows_without_a_drafter_elsewhere() -> None:
    policy = DrafterPolicy()
    assert all(asked_steps(policy, GOOD, 5000, others=False))
    assert policy.is_plain(ONE, set())
    assert not policy.is_plain(ONE, {"another"})


class Clock:
    """The engine's clock: only a test advances it, on a machine of any speed."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        """Advances the clock."""
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timed(make_engine: MakeEngine, clock: Clock) -> MakeEngine:
    """Builds engines that judge their drafters by ``clock``, on which a step takes ``step_s``."""

    def make(drafters: Sequence[Drafter], step_s: float = 0.001, **more: int) -> Engine:
        engine = make_engine(50, drafters, judged=True, timer=clock, **more)
        engine.runner.before = lambda: clock.spend(step_s)
        return engine

    return make


class Slow(EverythingDrafter):
    """Spends time on the clock, and guesses everything or nothing."""

    name = "slow"

    pause = 0.002

    def __init__(self, clock: Clock, right: bool) -> None:
        super().__init__(50 if right else 0, 1)
        self.clock, self.calls = clock, 0
        self.openings: list[Opening] = []

    def open(self, session: int, opening: Opening) -> None:
        super().open(session, opening)
        self.openings.append(opening)

    def draft(self) -> list[tuple[int, DraftTree]]:
        self.calls += 1
        self.clock.spend(self.pause)
        return super().draft()


def answer(engine: Engine, names: Sequence[str]) -> dict[str, list[int]]:
    said: dict[str, list[int]] = {}
    for name in names:
        engine.submit(Request(name, "t", [1, 2, 3], Sampling(1.0, seed=len(said)), 240))
        while engine.busy:
            for request, frame in engine.step().outputs:
                said.setdefault(request.id, []).extend(frame.tokens)
    return said


def test_the_engine_pauses_a_drafter_that_only_costs_time(
    timed: MakeEngine, clock: Clock, make_engine: MakeEngine
) -> None:
    slow, names = Slow(clock, right=False), ["a", "b", "c"]
    engine = timed([slow])
    said = answer(engine, names)
    assert engine.tally.steps > 600
    assert 5 < slow.calls < 60
    assert engine.guessing.paused == {"slow"}
    assert said == answer(make_engine(50), names)


def test_the_engine_goes_on_asking_a_drafter_that_saves_more_time_than_it_takes(
    timed: MakeEngine, clock: Clock
) -> None:
    right = Slow(clock, right=True)
    right.pause = 0.0002
    engine = timed([right], step_s=0.004)
    answer(engine, ["a", "b"])
    assert right.calls > 0.8 * engine.tally.steps


class Copyist(Slow):
    """Has guesses, all of them right, only for requests whose prompt begins with 7, and costs next to nothing."""

    name = "copyist"

    pause = 0.000005

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, right=True)
        self.copies: set[int] = set()

    def open(self, session: int, opening: Opening) -> None:
        super().open(session, opening)
        if opening.tokens[0] == 7:
            self.copies.add(session)

    def draft(self) -> list[tuple[int, DraftTree]]:
        return [(session, tree) for session, tree in super().draft() if session in self.copies]


def test_an_edit_behind_stories_is_guessed_at_as_in_a_fresh_verifier(timed: MakeEngine, clock: Clock) -> None:
    steps = []
    for stories in (6, 0):
        engine = timed([Copyist(clock)], step_s=0.004)
        answer(engine, [f"story {number}" for number in range(stories)])
        before = engine.tally.steps
        engine.submit(Request("edit", "t", [7, 2, 3], Sampling(0.7, seed=5), 100))
        while engine.busy:
            engine.step()
        steps.append(engine.tally.steps - before)
    assert steps[0] == steps[1] < 60


def test_a_dear_drafter_is_paused_that_guesses_what_a_cheap_one_does(timed: MakeEngine, clock: Clock) -> None:
    cheap, dear = EverythingDrafter(50, 1), Slow(clock, right=True)
    engine = timed([dear, cheap])
    answer(engine, ["a", "b", "c"])
    assert engine.guessing.paused == {"slow"}
    assert accepted_guesses(engine)[cheap.name] > 100


def test_a_drafter_is_not_judged_by_requests_that_do_not_admit_it(timed: MakeEngine, clock: Clock) -> None:
    slow = Slow(clock, right=False)
    engine = timed([slow])
    engine.submit(Request("a", "t", [1, 2, 3], Sampling(0.0), 200, speculation=Speculation(drafters=("another",))))
    while engine.busy:
        engine.step()
    assert not engine.guessing.paused
    assert slow.openings == []


def test_drafters_are_told_whose_request_it_is_and_where_its_prompt_ends(timed: MakeEngine, clock: Clock) -> None:
    slow = Slow(clock, right=True)
    engine = timed([slow])
    engine.submit(Request("a", "red", [1, 2, 3], Sampling(0.0), 6, emitted=[4, 5]))
    [opening] = slow.openings
    assert (list(opening.tokens), opening.tenant, opening.prompt) == ([1, 2, 3, 4, 5], "red", 3)


class CommitLog(Slow):
    """Notes the commits that it gets."""

    name = "log"

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, right=False)
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


def test_a_drafter_that_is_paused_is_told_all_at_once_what_was_decided_meanwhile(
    timed: MakeEngine, clock: Clock
) -> None:
    log = CommitLog(clock)
    engine = timed([log])
    said = answer(engine, ["a", "b", "c"])
    assert 3 <= log.commits < 0.3 * engine.tally.steps
    assert [text[3:] for text in log.texts.values()] == list(said.values())


def test_a_drafter_that_is_paused_is_not_asked_beside_prompts_too(timed: MakeEngine, clock: Clock) -> None:
    slow = Slow(clock, right=False)
    engine = timed([slow], step_s=0.004, running=8)
    calls = []
    for batch in range(2):
        for number in range(8):
            prompt = [1 + (number + place) % 40 for place in range(40)]
            engine.submit(Request(f"{batch} {number}", "t", prompt, Sampling(1.0, seed=number), 12 + number))
        while engine.busy:
            engine.step()
        calls.append(slow.calls)
    assert calls[0] > 0
    assert calls[1] - calls[0] < 6
