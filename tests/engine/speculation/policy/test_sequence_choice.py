"""A drafter that steps wait for is asked for sequences for which other drafters guess too little."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from outrider.engine.decode.engine import Engine
from outrider.engine.requests import sequence
from outrider.engine.requests.parameters import Speculation
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.engine.scheduling.cost_curve import CostCurve
from outrider.engine.speculation import DraftTree, Opening, Traits
from outrider.engine.speculation.policy.drafter_policy import DrafterPolicy
from outrider.engine.speculation.policy.local_drafter import LocalDrafter
from outrider.engine.speculation.policy.sequence_choice import READING, SequenceChoice, StepForecast

from tests.engine.drafters import EverythingDrafter
from tests.engine.engines import MakeEngine

ONE = 1
"""Size of a step of one sequence."""


def choice_after(brings: int, adds: float) -> SequenceChoice:
    """The choice for a drafter that brought so many tokens and added so many seconds; reading takes 0.1 s a token."""
    choice = SequenceChoice()
    choice.time_reading(10, 1.0)
    for _ in range(50):
        choice.choose(ONE, StepForecast(1, 1.0, {99: 0.0}), {99: 1})
        choice.learn(99, brings)
        choice.time_step(ONE, adds)
    return choice


def alone(tokens: float, seconds: float = 1.0) -> StepForecast:
    """A step of sequence 0 only; its guesses at hand bring ``tokens`` tokens."""
    return StepForecast(1 + tokens, seconds, {0: tokens})


def test_a_drafter_is_asked_where_the_step_then_brings_more_tokens_a_second() -> None:
    choice = choice_after(brings=3, adds=1.0)
    asked = {tokens: bool(choice.choose(ONE, alone(tokens), {0: 1})) for tokens in (0.0, 1.9, 2.1, 2.9, 8.0)}
    assert asked == {0.0: True, 1.9: True, 2.1: False, 2.9: False, 8.0: False}


def test_the_rest_of_a_batch_waits_for_no_single_sequence() -> None:
    choice = choice_after(brings=3, adds=1.0)
    brought = {0: 0.0, **dict.fromkeys(range(1, 8), 6.0)}
    ready = StepForecast(8 + sum(brought.values()), 1.0, brought)
    assert not choice.choose(ONE, ready, dict.fromkeys(brought, 1))
    poor = dict.fromkeys(range(7), 0.0) | {7: 6.0}
    assert choice.choose(ONE, StepForecast(14.0, 1.0, poor), dict.fromkeys(poor, 1)) == set(range(7))


@pytest.mark.parametrize("choice", [SequenceChoice(), choice_after(brings=0, adds=1.0)], ids=["new", "does not pay"])
def test_a_drafter_on_trial_is_asked_where_there_are_hardly_any_other_guesses(choice: SequenceChoice) -> None:
    assert choice.choose(ONE, alone(0.5), {0: 1})
    assert not choice.choose(ONE, alone(1.5), {0: 1})


def test_a_prompt_is_read_when_guesses_would_have_saved_as_much_as_reading_takes() -> None:
    choice = choice_after(brings=3, adds=1.0)
    asked = [bool(choice.choose(ONE, alone(0.0), {0: 100})) for _ in range(5)]
    assert asked == [False] * 3 + [True] * 2


def test_the_first_prompt_is_read_at_once_since_nothing_is_known() -> None:
    choice = SequenceChoice()
    assert choice.choose(ONE, alone(0.0), {0: 10_000})
    choice.time_reading(10_000, 100.0)
    choice.close(0)
    assert not choice.choose(ONE, alone(0.0), {0: 10_000})


def test_steps_that_have_enough_guesses_are_no_reason_to_read_a_prompt() -> None:
    choice = choice_after(brings=3, adds=1.0)
    for _ in range(100):
        assert not choice.choose(ONE, alone(4.0), {0: 55})
    assert not choice.choose(ONE, alone(0.0), {0: 55})


def test_how_long_reading_takes_is_learnt() -> None:
    choice = choice_after(brings=3, adds=1.0)
    for _ in range(50):
        choice.time_reading(100, 1.0)
    assert choice.choose(ONE, alone(0.0), {0: 290})
    choice.close(0)
    assert not choice.choose(ONE, alone(0.0), {0: 310})


def test_something_else_that_holds_up_a_step_is_not_laid_to_the_drafter() -> None:
    choice = choice_after(brings=3, adds=1.0)
    choice.time_step(ONE, 1000.0)
    assert choice.choose(ONE, alone(1.5), {0: 1})


def test_what_a_drafter_brings_is_what_is_more_than_was_at_hand() -> None:
    choice = SequenceChoice()
    for _ in range(50):
        choice.choose(ONE, alone(0.9), {0: 1})
        choice.learn(0, 3)
        choice.time_step(ONE, 1.0)
    assert choice.choose(ONE, alone(1.0), {0: 1})
    assert not choice.choose(ONE, alone(1.2), {0: 1})


class Dear(EverythingDrafter):
    """A drafter that steps wait for. Records the sequences that it is to leave out, and all commits."""

    name = "dear"
    traits = Traits(slow=True, rests=True)

    def __init__(self, vocabulary: int, depth: int) -> None:
        super().__init__(vocabulary, depth)
        self.calls = 0
        self.texts: dict[int, list[int]] = {}
        self.rests: list[int] = []

    def open(self, session: int, opening: Opening) -> None:
        super().open(session, opening)
        self.texts[session] = list(opening.tokens)

    def commit(self, session: int, length: int, tokens: Sequence[int]) -> None:
        super().commit(session, length, tokens)
        assert length == len(self.texts[session])
        self.texts[session].extend(tokens)

    def rest(self, session: int) -> None:
        self.rests.append(session)

    def draft(self) -> list[tuple[int, DraftTree]]:
        self.calls += 1
        return super().draft()


def run(engine: Engine, **drafters: tuple[str, ...]) -> int:
    """Answers a request of each name, all at once; the number of steps."""
    before = engine.tally.steps
    for seed, (name, admitted) in enumerate(drafters.items()):
        engine.submit(
            Request(name, "t", [1, 2, seed], Sampling(1.0, seed=seed), 60, speculation=Speculation(drafters=admitted))
        )
    while engine.busy:
        engine.step()
    return engine.tally.steps - before


def test_an_engine_asks_a_dear_drafter_only_where_cheaper_ones_leave_something_to_guess(
    make_engine: MakeEngine,
) -> None:
    dear, cheap = Dear(3, 1), EverythingDrafter(3, 2)
    steps = run(make_engine(3, [dear, cheap], judged=True), a=())
    assert (dear.calls, steps < 30) == (0, True)
    steps = run(make_engine(3, [dear], judged=True), a=())
    assert dear.calls > 0.8 * steps > 16


def test_an_engine_has_a_dear_drafter_leave_out_the_sequences_that_need_no_more_guesses(
    make_engine: MakeEngine,
) -> None:
    dear, cheap = Dear(3, 1), EverythingDrafter(3, 2)
    run(make_engine(3, [dear, cheap], judged=True), rich=(), poor=("dear",))
    assert dear.calls > 10
    rich = min(dear.texts)
    assert set(dear.rests) == {rich}


def test_a_drafter_that_is_not_asked_after_its_pause_misses_nothing() -> None:
    dear = Dear(3, 1)
    own = LocalDrafter(dear, SequenceChoice())
    running = {n: sequence.Sequence.start(Request(str(n), "t", [1], Sampling(0.0), 9), n, None) for n in (0, 1)}
    for number in running:
        own.open(number, Opening([1], Sampling(0.0), 9))
    for paused, asked in ((True, []), (False, []), (False, [1]), (False, [0, 1])):
        own.paused = paused
        if asked:
            own.draft(running, set(asked), None)
        for number, each in running.items():
            own.follow(number, len(each.tokens), [2])
            each.tokens.append(2)
    own.draft(running, {0, 1}, None)
    assert dear.texts == {number: each.tokens for number, each in running.items()}


def test_a_prompt_counts_as_read_once_the_drafter_was_asked() -> None:
    own = LocalDrafter(Dear(3, 1), SequenceChoice())
    prompt = [1] * (2 * READING)
    each = sequence.Sequence.start(Request("a", "t", prompt, Sampling(0.0), 9), 0, None)
    own.open(0, Opening(prompt, Sampling(0.0), 9))
    assert own.unread(each) == 2 * READING
    own.draft({0: each}, {0}, None)
    own.follow(0, len(each.tokens), [2])
    each.tokens.append(2)
    assert own.unread(each) == 1


class Reader(Dear):
    """Takes several calls to read a prompt."""

    left = 3

    @property
    def reading(self) -> bool:
        return self.left > 0

    def draft(self) -> list[tuple[int, DraftTree]]:
        self.left -= 1
        return [] if self.left else super().draft()


class Learning(SequenceChoice):
    """Records the calls, and learns nothing from them."""

    def __init__(self) -> None:
        super().__init__()
        self.learnt: list[tuple[str, float]] = []

    @property
    def added(self) -> list[float]:
        """Seconds that the drafter added to steps."""
        return [seconds for what, seconds in self.learnt if what == "step"]

    def time_reading(self, tokens: int, seconds: float) -> None:
        self.learnt.append((f"read {tokens}", seconds))

    def time_step(self, size: int, seconds: float) -> None:
        self.learnt.append(("step", seconds))

    def learn(self, number: int, accepted: int) -> None:
        self.learnt.append(("learn", accepted))


def test_a_prompt_that_takes_several_calls_is_read_by_all_of_them() -> None:
    learning = Learning()
    own = LocalDrafter(Reader(3, 1), learning)
    prompt = [1] * 100
    each = sequence.Sequence.start(Request("a", "t", prompt, Sampling(0.0), 9), 0, None)
    own.open(0, Opening(prompt, Sampling(0.0), 9))
    for _ in range(4):
        own.skip()
        own.draft({0: each}, {0}, None)
        own.time_wait(2.0, prompts=False)
        own.learn(0, 1)
        own.time_step(ONE, 3.0)
    assert learning.learnt == [("read 100", 6.0), ("learn", 1), ("learn", 1), ("step", 3.0)]


def test_a_drafter_adds_what_a_step_takes_longer_than_it_would_alone() -> None:
    learning = Learning()
    own = LocalDrafter(Dear(3, 1), learning)
    own.open(0, Opening([1], Sampling(0.0), 9))
    own.seconds_without = 2.0
    own.draft({0: sequence.Sequence.start(Request("a", "t", [1], Sampling(0.0), 9), 0, None)}, {0}, None)
    own.time_wait(0.5, prompts=False)
    own.time_step(ONE, 2.5)
    own.skip()
    own.time_step(ONE, 7.0)
    assert learning.added == [0.5]


class Teaching(DrafterPolicy):
    """One `Learning` chooses for all drafters."""

    def __init__(self) -> None:
        super().__init__()
        self.learning = Learning()

    def sequence_choice(self) -> SequenceChoice:
        return self.learning


def test_an_engine_compares_steps_with_what_they_would_take_without_the_drafter(make_engine: MakeEngine) -> None:
    policy = Teaching()
    engine = make_engine(3, [Dear(3, 1)], policy=policy, cost=CostCurve([1, 2], [1000.0, 1000.0]))
    run(engine, a=())
    assert len(policy.learning.added) > 10
    assert min(policy.learning.added) < -1.0, "steps were said to take 1000 s"


@pytest.mark.parametrize(("tokens", "reads"), [(READING - 1, False), (READING, True)])
def test_a_few_tokens_are_no_prompt_to_read(tokens: int, reads: bool) -> None:
    learning = Learning()
    own = LocalDrafter(Dear(3, 1), learning)
    own.open(0, Opening([1] * tokens, Sampling(0.0), 9))
    own.draft({0: sequence.Sequence.start(Request("a", "t", [1] * tokens, Sampling(0.0), 9), 0, None)}, {0}, None)
    own.time_wait(0.5, prompts=False)
    own.time_step(ONE, 1.0)
    assert (own.waited, bool(learning.added)) == ((0.0, False) if reads else (0.5, True))


def test_the_wait_beside_prompts_is_kept_for_the_next_step_without() -> None:
    own = LocalDrafter(Dear(3, 1), SequenceChoice())
    own.open(0, Opening([1], Sampling(0.0), 9))
    for seconds in (6.0, 2.0):
        own.time_wait(seconds, prompts=True)
    assert (own.waited, own.usual_wait) == (0.0, 0.0)
    assert (own.opening(), own.opening()) == (8.0, 0.0)
