"""The engine: the same tokens whatever is guessed, and pages that are always accounted for."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from outrider.engine.logits.edits import EditBatch
from outrider.engine.requests.output import Finish
from outrider.engine.requests.parameters import SamplingParams, Speculation
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.engine.scheduling.cost_curve import CostCurve
from outrider.engine.scheduling.scheduler import QueueFull
from outrider.engine.speculation import DrafterContext, DraftTree, MergedTree
from outrider.engine.speculation.drafters.model_drafter import ModelDrafter
from outrider.engine.text import Tokenizer

from tests.engine.drafters import EverythingDrafter
from tests.engine.engines import VOCABULARY, MakeEngine, accepted_guesses, random_drafter, requests, run, said, tokens
from tests.toy_model import save_toy


@pytest.fixture
def plain(make_engine: MakeEngine) -> dict[str, list[int]]:
    """The answers to requests that run one at a time without guesses."""
    engine = make_engine(VOCABULARY)
    return {request.id: said(engine, [request])[request.id] for request in requests(24)}


@pytest.mark.parametrize("running", [1, 3, 64])
@pytest.mark.parametrize("kind", ["none", "random", "everything"])
def test_guesses_and_batches_never_change_the_tokens(
    make_engine: MakeEngine, plain: dict[str, list[int]], kind: str, running: int
) -> None:
    drafters = {"none": [], "random": [random_drafter()], "everything": [EverythingDrafter(VOCABULARY, 1)]}[kind]
    engine = make_engine(VOCABULARY, drafters, running=running)
    assert said(engine, requests(24)) == plain
    if kind == "everything":
        assert accepted_guesses(engine)["everything"] > 100


def test_preempted_sequences_say_the_same_tokens(make_engine: MakeEngine, plain: dict[str, list[int]]) -> None:
    engine = make_engine(VOCABULARY, [EverythingDrafter(VOCABULARY, 1)], pages=16)
    assert said(engine, requests(24)) == plain
    assert engine.scheduler.preempted
    assert engine.tally.prefilled > sum(len(request.prompt) for request in requests(24))


def test_chunks_of_a_prompt_do_not_change_the_tokens(make_engine: MakeEngine, plain: dict[str, list[int]]) -> None:
    assert said(make_engine(VOCABULARY, prefill_rows=7), requests(24)) == plain


def test_a_request_taken_over_goes_on_with_the_same_tokens(
    make_engine: MakeEngine, plain: dict[str, list[int]]
) -> None:
    engine = make_engine(VOCABULARY, [random_drafter()])
    for cut, request in enumerate(requests(24)):
        before = plain[request.id][:cut]
        over = Request(request.id, "t", request.prompt, request.sampling, request.max_tokens, before)
        frames = run(engine, [over])[request.id]
        assert frames[0].first_index == cut
        assert before + [token for frame in frames for token in frame.tokens] == plain[request.id]


def test_requests_cancelled_at_any_moment_leave_no_page_behind(make_engine: MakeEngine) -> None:
    engine = make_engine(VOCABULARY, [EverythingDrafter(VOCABULARY, 1)], pages=40)
    dice, wanted = random.Random(5), requests(30)
    for request in wanted:
        engine.submit(request)
    while engine.busy:
        engine.step()
        engine.cancel(dice.choice(wanted).id)
        engine.scheduler.check()
    assert engine.scheduler.pages.available == 40
    assert engine.load == 0


def test_the_last_frame_tells_the_end_and_the_cost(make_engine: MakeEngine) -> None:
    engine = make_engine(VOCABULARY, [EverythingDrafter(VOCABULARY, 1)])
    frames = run(engine, [Request("r", "t", [1, 2, 3], Sampling(0.0), 9)])["r"]
    assert [frame.finish for frame in frames[:-1]] == [None] * (len(frames) - 1)
    last = frames[-1]
    assert last.finish is Finish.LENGTH
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (3, 9)
    assert last.usage.steps == len(frames) < 9
    assert last.usage.accepted_tokens == 9 - sum(name == "" for frame in frames for name in frame.guessed_by)


def test_a_stop_id_inside_an_accepted_run_ends_the_answer_there(make_engine: MakeEngine) -> None:
    free = tokens(run(make_engine(VOCABULARY), [Request("r", "t", [4], Sampling(1.0, seed=3), 20)])["r"])
    stop = free[7]
    engine = make_engine(VOCABULARY, [EverythingDrafter(VOCABULARY, 1)])
    request = Request("r", "t", [4], Sampling(1.0, seed=3), 20, stop_ids=frozenset({stop}))
    frames = run(engine, [request])["r"]
    assert tokens(frames) == free[: free.index(stop) + 1]
    assert frames[-1].finish is Finish.STOP
    assert frames[-1].texts[-1] == ""


def test_a_stop_string_ends_the_text_before_it(make_engine: MakeEngine) -> None:
    free = run(make_engine(VOCABULARY), [Request("r", "t", [4], Sampling(1.0, seed=3), 20)])["r"]
    text = "".join(text for frame in free for text in frame.texts)
    stop = text[15:22]
    engine = make_engine(VOCABULARY, [EverythingDrafter(VOCABULARY, 1)])
    frames = run(engine, [Request("r", "t", [4], Sampling(1.0, seed=3), 20, parameters=SamplingParams(stop=(stop,)))])[
        "r"
    ]
    assert "".join(text for frame in frames for text in frame.texts) == text[: text.index(stop)]
    assert (frames[-1].finish, frames[-1].stop) == (Finish.STOP, stop)


def test_an_answer_ends_at_the_context_limit(make_engine: MakeEngine) -> None:
    engine = make_engine(VOCABULARY, [EverythingDrafter(VOCABULARY, 1)])
    frames = run(engine, [Request("r", "t", [1] * 250, Sampling(1.0), 6)])["r"]
    assert len(tokens(frames)) == 6
    assert frames[-1].finish is Finish.LENGTH


def test_a_common_prefix_is_computed_once(make_engine: MakeEngine) -> None:
    engine = make_engine(VOCABULARY)
    prompt = list(range(40))
    run(engine, [Request("a", "t", prompt, Sampling(0.0), 1)])
    frames = run(engine, [Request("b", "t", prompt, Sampling(0.0), 1)])["b"]
    assert frames[-1].usage is not None
    assert frames[-1].usage.cached_tokens == 32
    other = run(engine, [Request("c", "another", prompt, Sampling(0.0), 1)])["c"]
    assert other[-1].usage is not None
    assert other[-1].usage.cached_tokens == 0


def test_a_full_queue_refuses_but_what_finds_a_slot_does_not_count_there(make_engine: MakeEngine) -> None:
    engine = make_engine(VOCABULARY, running=1, waiting=2)
    *taken, refused = requests(4)
    for each in taken:
        engine.submit(each)
    with pytest.raises(QueueFull):
        engine.submit(refused)
    assert set(run(engine, [])) == {each.id for each in taken}
    assert engine.load == 0


@pytest.mark.parametrize("foreign", [-1, VOCABULARY])
def test_guesses_that_the_target_has_no_ids_for_are_dropped(
    make_engine: MakeEngine, plain: dict[str, list[int]], foreign: int
) -> None:
    drafter = EverythingDrafter(VOCABULARY, 1)
    drafter.guesses[7] = foreign
    engine = make_engine(VOCABULARY, [drafter])
    assert said(engine, requests(24)) == plain
    assert engine.guessing.counts.unusable[drafter.name] > 0


class Broken:
    """A grammar whose rule cannot be applied."""

    failure = None

    def guide(self, tokens: list[int], prompt: int, stop_ids: frozenset[int]) -> Broken:
        return self

    def prune(self, guesses: MergedTree) -> MergedTree:
        return guesses

    def edit(self, batch: EditBatch, row: int, guesses: MergedTree) -> None:
        raise ArithmeticError


def poison(name: str) -> Request:
    """A request that makes every step fail."""
    return Request(name, "t", [1, 2, 3], Sampling(0.0), 24, grammar=Broken())  # type: ignore[arg-type]


def test_a_request_that_breaks_a_step_ends_and_harms_no_other(
    make_engine: MakeEngine, plain: dict[str, list[int]]
) -> None:
    engine = make_engine(VOCABULARY, [random_drafter()])
    frames = run(engine, [poison("poison"), *requests(24)])
    [last] = frames.pop("poison")
    assert last.finish is Finish.ERROR
    assert last.error == "the step failed: ArithmeticError"
    assert {name: tokens(each) for name, each in frames.items()} == plain


def test_an_engine_with_which_nothing_succeeds_any_more_says_so(make_engine: MakeEngine) -> None:
    with pytest.raises(ArithmeticError):
        run(make_engine(VOCABULARY), [poison(f"r{number}") for number in range(20)])


class Unsure(EverythingDrafter):
    """Guesses each of three tokens with a confidence of one third."""

    def __init__(self) -> None:
        super().__init__(3, 1)

    def draft(self) -> list[tuple[int, DraftTree]]:
        return [
            (session, DraftTree(tree.length, tree.tokens, tree.parents, [1 / 3] * 3, self.name))
            for session, tree in super().draft()
        ]


@pytest.mark.parametrize(
    ("free", "per_row", "buys"),
    [(1, 0.1, True), (1, 0.5, False), (8, 0.1, True), (8, 0.5, False)],
    ids=["cheap", "dear", "cheap behind the prompt", "dear behind the prompt"],
)
def test_guesses_beside_prompts_are_bought_only_where_they_pay_without(
    make_engine: MakeEngine, free: int, per_row: float, buys: bool
) -> None:
    cost = CostCurve([1, free, free + 1000][free == 1 :], [1.0, 1.0, 1.0 + 1000 * per_row][free == 1 :])
    engine = make_engine(3, [Unsure()], prefill_rows=8, cost=cost)
    engine.submit(Request("decodes", "t", [1, 2], Sampling(1.0, seed=1), 60))
    engine.step()
    engine.submit(Request("prompt", "t", [0, 1] * 30, Sampling(1.0, seed=2), 1))
    for _ in range(6):
        engine.step()
    assert bool(engine.tally.guesses.bought) == buys


class CallCounter(EverythingDrafter):
    """Counts how often it is asked."""

    asked = 0

    def draft(self) -> list[tuple[int, DraftTree]]:
        self.asked += 1
        return super().draft()


def test_a_drafter_is_asked_only_while_somebody_wants_its_guesses(make_engine: MakeEngine) -> None:
    drafter = CallCounter(50, 1)
    engine = make_engine(50, [drafter])
    for name, asked in (("before", False), ("everything", True), ("after", False)):
        so_far = drafter.asked
        run(engine, [Request(name, "t", [1, 2, 3], Sampling(0.0), 8, speculation=Speculation(drafters=(name,)))])
        assert (drafter.asked > so_far) == asked


def test_a_drafter_of_a_shorter_context_guesses_up_to_there_and_is_silent_then(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    directory = save_toy(tmp_path / "short", VOCABULARY, context=40)
    fingerprint = Tokenizer.load(directory).fingerprint
    draft = ModelDrafter(DrafterContext(fingerprint, VOCABULARY, 256, directory, dtype="float32"))
    assert draft.context_length == 40
    wanted = [Request(f"r{length}", "t", [7] * length, Sampling(1.0, seed=length), 60) for length in (3, 30, 39, 45)]
    frames = run(make_engine(VOCABULARY, [draft]), wanted)
    assert {name: tokens(each) for name, each in frames.items()} == said(make_engine(VOCABULARY), wanted)
    for request in wanted:
        by = [name for frame in frames[request.id] for name in frame.guessed_by]
        inside = max(41 - len(request.prompt), 0)
        assert not any(by[inside:])
        assert any(by[:inside]) or inside < 4
