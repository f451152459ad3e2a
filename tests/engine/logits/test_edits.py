"""Penalties, biases and bans: the joint law by enumeration, wrong rules, and the same tokens whatever is guessed."""

from __future__ import annotations

import itertools
import random
import warnings
from collections import Counter

import pytest
import torch
from outrider.engine.logits.edits import EditBatch, History, Mask
from outrider.engine.logits.likelihood import score
from outrider.engine.requests.output import Finish
from outrider.engine.requests.parameters import SamplingParams
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling, draws
from outrider.engine.speculation import MergedTree
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.race_sample import Truncation, edited_logits

from tests.engine.drafters import EverythingDrafter
from tests.engine.engines import CheckedEngine, MakeEngine, accepted_guesses, outcome_of, random_drafter, run, tokens
from tests.engine.laws import DRAWS, TEMPERATURE, answers, chi_square

VOCABULARY, PROMPT = 4, [2]
"""A prompt of one token: the first step has a tree already, so that its nodes lie two deep."""
TRUNCATION = Truncation(top_p=0.92)
EDITS = SamplingParams(
    repetition_penalty=1.6,
    frequency_penalty=0.9,
    presence_penalty=0.7,
    logit_bias={0: 1.5, 3: -0.5},
    bad_words=((2, 1), (3,) * 3),
    min_tokens=2,
)
STOPS = frozenset({3})


def edited(logits: torch.Tensor, prompt: list[int], answer: list[int], edits: SamplingParams) -> torch.Tensor:
    """One row of logits, changed entry by entry as the definitions say."""
    said, held = Counter(answer), set(prompt) | set(answer)
    if (window := edits.repeat_last_n) is not None:
        history = prompt + answer
        said = Counter(history if window < 0 else history[max(len(history) - window, 0) :])
        held = set(said)
    row = logits.clone()
    for token in range(len(row)):
        if token in held:
            penalty = edits.repetition_penalty
            row[token] = row[token] / penalty if row[token] > 0 else row[token] * penalty
        row[token] -= edits.frequency_penalty * said[token] + edits.presence_penalty * (said[token] > 0)
        row[token] += edits.logit_bias.get(token, 0.0)
    history = prompt + answer
    for *before, last in edits.bad_words:
        if history[len(history) - len(before) :] == before:
            row[last] = -torch.inf
    if len(answer) < edits.min_tokens:
        row[list(STOPS)] = -torch.inf
    if edits.allowed_token_ids:
        row[[token for token in range(len(row)) if token not in edits.allowed_token_ids]] = -torch.inf
    return row


def exact_law(engine: CheckedEngine) -> dict[tuple[int, ...], float]:
    """Probability of every answer of up to three tokens, from the target's logits one sequence at a time."""
    model, sampling, law = engine.runner.model, Sampling(TEMPERATURE, TRUNCATION), Counter[tuple[int, ...]]()
    for answer in itertools.product(range(VOCABULARY), repeat=3):
        ids = PROMPT + list(answer)
        with torch.inference_mode():
            batch = RaggedBatch.build([SequenceRows(len(ids), 0, [0, 1], None)], 8, device="cpu")
            rows = model.logits(model.forward(torch.tensor(ids), batch, model.new_pool(2, 8)))[:3]
        shares = [
            sampling.shape(edited(row, PROMPT, list(answer[:at]), EDITS)[None])[0].double().softmax(-1)[answer[at]]
            for at, row in enumerate(rows)
        ]
        law[answer] = float(torch.stack(shares).prod())
    return dict(law)


def follows_the_law(engine: CheckedEngine, rule: type[Rule] | None = None) -> bool:
    """Whether answers have the law of the edited target; a ``rule`` makes the edits in the engine's place."""
    requests = [
        Request(
            f"r{seed}",
            "t",
            PROMPT,
            Sampling(TEMPERATURE, TRUNCATION, seed * 7919),
            3,
            stop_ids=STOPS,
            parameters=SamplingParams() if rule else EDITS,
            grammar=rule() if rule else None,  # type: ignore[arg-type]
        )
        for seed in range(DRAWS)
    ]
    statistic, degrees = chi_square(exact_law(engine), answers(engine, requests))
    return statistic < degrees + 5 * (2 * degrees) ** 0.5


@pytest.mark.parametrize("depth", [0, 2])
def test_the_joint_law_is_that_of_the_edited_target(make_engine: MakeEngine, depth: int) -> None:
    assert follows_the_law(
        make_engine(VOCABULARY, [EverythingDrafter(VOCABULARY, depth)] if depth else [], guesses=2_000)
    )


class Rule:
    """Edits of a request that stand in its grammar's place, so that a test may do them wrongly."""

    failure = None

    def guide(self, tokens: list[int], prompt: int, stop_ids: frozenset[int]) -> Rule:
        self.said = tokens
        self.history = History(EDITS, self.tokens, prompt, stop_ids)
        return self

    def ready(self) -> bool:
        return True

    @property
    def tokens(self) -> list[int]:
        """Prompt and answer, as the history reads them."""
        return self.said

    def prune(self, guesses: MergedTree) -> MergedTree:
        return guesses

    def edit(self, batch: EditBatch, row: int, guesses: MergedTree) -> None:
        for node, depth in enumerate([0, *guesses.depths], row):
            batch.allow(node, Mask(self.said, len(self.said) + depth, b"\xff" * 64))
        self.change(batch, row, guesses)

    def change(self, batch: EditBatch, row: int, guesses: MergedTree) -> None:
        self.history.edit(batch, row, guesses)


class OneTokenAStep(Rule):
    def change(self, batch: EditBatch, row: int, guesses: MergedTree) -> None:
        self.history.edit(batch, row, MergedTree(guesses.tokens, [-1] * len(guesses)))


class MissingAtGuesses(Rule):
    def change(self, batch: EditBatch, row: int, guesses: MergedTree) -> None:
        self.history.edit(batch, row, MergedTree())


class CountedTwice(Rule):
    """Reads each token of the answer twice."""

    def guide(self, tokens: list[int], prompt: int, stop_ids: frozenset[int]) -> Rule:
        self.twice, self.read = list(tokens), len(tokens)
        return super().guide(tokens, prompt, stop_ids)

    @property
    def tokens(self) -> list[int]:
        return self.twice

    def edit(self, batch: EditBatch, row: int, guesses: MergedTree) -> None:
        self.twice.extend(token for token in self.said[self.read :] for _ in range(2))
        self.read = len(self.said)
        super().edit(batch, row, guesses)


@pytest.mark.parametrize(
    ("rule", "follows"),
    [(Rule, True), (OneTokenAStep, False), (MissingAtGuesses, False), (CountedTwice, False)],
)
def test_edits_that_forget_the_nodes_own_path_or_count_twice_break_the_law(
    make_engine: MakeEngine, rule: type[Rule], follows: bool
) -> None:
    engine = make_engine(VOCABULARY, [EverythingDrafter(VOCABULARY, 2)], guesses=2_000)
    assert follows_the_law(engine, rule) is follows


def mixed(count: int, vocabulary: int, max_tokens: int = 24) -> list[Request]:
    """Requests with many combinations of parameters."""
    dice, made = random.Random(7), []
    for index in range(count):
        parameters = SamplingParams(
            repetition_penalty=dice.choice([1.0, 1.3, 0.8]),
            frequency_penalty=dice.choice([0.0, 0.6]),
            presence_penalty=dice.choice([0.0, -0.4, 1.0]),
            logit_bias={dice.randrange(vocabulary): dice.uniform(-4, 4) for _ in range(dice.choice([0, 5]))},
            bad_words=tuple(
                tuple(dice.choices(range(vocabulary), k=dice.randint(1, 2))) for _ in range(dice.choice([0, 40]))
            ),
            min_tokens=dice.choice([0, 0, 9]),
            repeat_last_n=dice.choice([None, None, -1, 0, 1, 3, 20]),
            allowed_token_ids=tuple(dice.sample(range(vocabulary), 30)) if dice.random() < 0.3 else (),
            logprobs=dice.choice([None, 0, 3, 20]),
            echo=dice.random() < 0.5,
        )
        sampling = Sampling(dice.choice([0.0, 0.9]), Truncation(top_p=dice.choice([1.0, 0.9])), dice.getrandbits(64))
        prompt = dice.choices(range(vocabulary), k=dice.randint(1, 30))
        made.append(
            Request(
                f"r{index}",
                "t",
                prompt,
                sampling,
                max_tokens,
                stop_ids=frozenset(dice.sample(range(vocabulary), 2)),
                parameters=parameters,
            )
        )
    return made


@pytest.mark.parametrize("kind", ["random", "everything"])
def test_edited_tokens_and_their_likelihoods_are_the_same_whatever_is_guessed(
    make_engine: MakeEngine, kind: str
) -> None:
    wanted, plain = mixed(40, 50), make_engine(50)
    alone = {request.id: outcome_of(run(plain, [request])[request.id]) for request in wanted}
    drafter = random_drafter() if kind == "random" else EverythingDrafter(50, 1)
    engine = make_engine(50, [drafter], pages=48 if kind == "everything" else 256, prefill_rows=17)
    together = run(engine, wanted)
    assert {name: outcome_of(frames) for name, frames in together.items()} == alone
    assert accepted_guesses(engine)[drafter.name] > (100 if kind == "everything" else 0)


def test_an_edited_request_goes_on_elsewhere_with_the_same_tokens_and_likelihoods(make_engine: MakeEngine) -> None:
    engine = make_engine(50, [EverythingDrafter(50, 1)])
    for cut, request in enumerate(mixed(24, 50)):
        whole = [frame for frame in run(engine, [request])[request.id] if frame.first_index >= 0]
        ids, likely, finish = outcome_of(whole)
        if cut >= len(ids):
            continue
        fields = {name: getattr(request, name) for name in Request.__slots__}
        rest = run(engine, [Request(**fields | {"emitted": ids[:cut]})])[request.id]
        if cut:
            assert rest[0].first_index == cut
        ours = [frame for frame in rest if frame.first_index >= 0]
        assert outcome_of(ours) == (ids[cut:], likely[cut:] if likely else [], finish)


def greedy(engine: CheckedEngine, prompt: list[int], edits: SamplingParams, length: int) -> list[int]:
    """The answer of the edited target, one token at a time."""
    model, answer = engine.runner.model, list[int]()
    while len(answer) < length:
        ids = prompt + answer
        with torch.inference_mode():
            batch = RaggedBatch.build([SequenceRows(len(ids), 0, [0, 1, 2], None)], 8, device="cpu")
            logits = model.logits(model.forward(torch.tensor(ids), batch, model.new_pool(3, 8)))[-1]
        answer.append(int(edited(logits, prompt, answer, edits).argmax()))
    return answer


def test_an_answer_is_greedy_transformers_with_a_repetition_penalty(make_engine: MakeEngine) -> None:
    engine = make_engine(50)
    penalty = SamplingParams(repetition_penalty=1.7)
    said = tokens(run(engine, [Request("r", "t", [4, 7, 4], Sampling(0.0), 20, parameters=penalty)])["r"])
    assert said == greedy(engine, [4, 7, 4], penalty, 20)


@pytest.mark.parametrize("depth", [0, 2])
def test_penalties_of_a_window_count_the_last_tokens_of_prompt_and_answer(make_engine: MakeEngine, depth: int) -> None:
    """As llama.cpp's sampler of penalties does, which has taken in the prompt."""
    engine = make_engine(50, [EverythingDrafter(50, depth)] if depth else [], guesses=2_600)
    answers = []
    for window in (None, -1, 0, 1, 2, 5):
        penalty = SamplingParams(
            repetition_penalty=1.7, frequency_penalty=0.6, presence_penalty=0.4, repeat_last_n=window
        )
        answers.append(tokens(run(engine, [Request("r", "t", [4, 7, 4], Sampling(0.0), 18, parameters=penalty)])["r"]))
        assert answers[-1] == greedy(engine, [4, 7, 4], penalty, 18)
    assert answers[2] == greedy(engine, [4, 7, 4], SamplingParams(), 18)
    assert len(set(map(tuple, answers))) > 3


@pytest.mark.parametrize("depth", [0, 1])
def test_only_allowed_tokens_are_drawn(make_engine: MakeEngine, depth: int) -> None:
    engine = make_engine(50, [EverythingDrafter(50, depth)] if depth else [])
    only = SamplingParams(allowed_token_ids=(3, 7, 31, 49))
    said = tokens(run(engine, [Request("r", "t", [4], Sampling(0.0), 20, parameters=only)])["r"])
    assert said == greedy(engine, [4], only, 20)
    none = SamplingParams(allowed_token_ids=(3,), bad_words=((3,),))
    frames = run(engine, [Request("r", "t", [4], Sampling(0.0), 20, parameters=none)])["r"]
    assert frames[-1].finish is Finish.REFUSED
    assert "allowed_token_ids" in (frames[-1].error or "")


def test_no_stop_is_drawn_before_the_least_length_and_the_first_behind_it_ends_the_answer(
    make_engine: MakeEngine,
) -> None:
    free = tokens(run(make_engine(50), [Request("r", "t", [4], Sampling(1.0, seed=3), 30)])["r"])
    everything = frozenset(range(50)) - {free[0]}
    for least in (0, 5, 30):
        parameters = SamplingParams(min_tokens=least)
        request = Request("r", "t", [4], Sampling(1.0, seed=3), 30, stop_ids=everything, parameters=parameters)
        frames = run(make_engine(50, [EverythingDrafter(50, 1)]), [request])["r"]
        said = tokens(frames)
        assert all(token == free[0] for token in said[:least])
        assert (len(said), frames[-1].finish) == ((30, Finish.LENGTH) if least == 30 else (len(said), Finish.STOP))
        assert all(token not in everything for token in said[: max(least, len(said) - 1)])


def test_a_stop_string_inside_the_least_length_is_text(make_engine: MakeEngine) -> None:
    free = run(make_engine(50), [Request("r", "t", [4], Sampling(1.0, seed=3), 20)])["r"]
    texts = [text for frame in free for text in frame.texts]
    parameters = SamplingParams(stop=(texts[2], texts[9]), min_tokens=8)
    request = Request("r", "t", [4], Sampling(1.0, seed=3), 20, parameters=parameters)
    frames = run(make_engine(50, [EverythingDrafter(50, 1)]), [request])["r"]
    end = next(place for place, text in enumerate(texts) if place >= 8 and text in (texts[2], texts[9]))
    assert tokens(frames) == tokens(free)[: end + 1]
    assert "".join(text for frame in frames for text in frame.texts) == "".join(texts[:end])
    assert frames[-1].finish is Finish.STOP


def test_bans_that_leave_nothing_end_the_request_with_a_reason(make_engine: MakeEngine) -> None:
    parameters = SamplingParams(bad_words=tuple((4, token) for token in range(50)), logit_bias={4: 100.0})
    engine = make_engine(50, [EverythingDrafter(50, 1)])
    frames = run(engine, [Request("r", "t", [1], Sampling(1.0), 20, parameters=parameters)])["r"]
    assert tokens(frames) == [4]
    assert frames[-1].finish is Finish.REFUSED
    assert frames[-1].error is not None
    assert "bad_words" in frames[-1].error
    assert engine.scheduler.pages.available == 256


def test_likelihoods_are_the_targets_own_of_prompt_and_answer(make_engine: MakeEngine) -> None:
    prompt, engine = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3], make_engine(50, [EverythingDrafter(50, 1)], prefill_rows=4)
    run(engine, [Request("warm", "t", prompt, Sampling(0.0), 4)])
    parameters = SamplingParams(
        repetition_penalty=2.0, frequency_penalty=1.0, presence_penalty=1.0, logit_bias={3: 5.0}, logprobs=4, echo=True
    )
    frames = run(engine, [Request("r", "t", prompt, Sampling(1.5, seed=1), 8, parameters=parameters)])["r"]
    ids, likely, _ = outcome_of(frames)
    assert isinstance(likely, list)
    assert frames[0].first_index == -10
    assert ids[:10] == prompt
    assert len(likely) == len(ids) == 18
    model = engine.runner.model
    with torch.inference_mode():
        batch = RaggedBatch.build([SequenceRows(18, 0, [0, 1, 2], None)], 8, device="cpu")
        rows = model.logits(model.forward(torch.tensor(ids), batch, model.new_pool(3, 8))).double().log_softmax(-1)
    assert likely[0].logprob is None
    for place in range(1, 18):
        best = rows[place - 1].topk(4)
        assert likely[place].logprob == pytest.approx(rows[place - 1, ids[place]].item(), abs=2e-6)
        assert [entry.token for entry in likely[place].top] == best.indices.tolist()
        assert [entry.logprob for entry in likely[place].top] == pytest.approx(best.values.tolist(), abs=2e-6)
        assert likely[place].data == f"<{ids[place]}>".encode()


def test_a_prompt_may_be_scored_without_an_answer(make_engine: MakeEngine) -> None:
    for prompt in ([7], [7, 8, 9]):
        scored = SamplingParams(logprobs=0, echo=True)
        frames = run(make_engine(50), [Request("r", "t", prompt, Sampling(0.0), 0, parameters=scored)])["r"]
        ids, likely, finish = outcome_of(frames)
        assert (ids, finish) == (prompt, Finish.LENGTH)
        assert isinstance(likely, list)
        assert [entry.logprob is None for entry in likely] == [True] + [False] * (len(prompt) - 1)
        assert frames[-1].usage is not None
        assert frames[-1].usage.completion_tokens == 0


def test_repetition_and_bad_words_are_those_of_transformers() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import NoBadWordsLogitsProcessor, RepetitionPenaltyLogitsProcessor
    generator = torch.Generator().manual_seed(1)
    prompt, answer, words = [5, 9, 9, 31], [7, 7, 2, 40], ((7, 2, 40, 3), (40, 11), (12,), (9, 40))
    logits = torch.randn(3, 50, generator=generator) * 4
    tree = MergedTree()
    for token, parent in [(3, -1), (9, -1)]:
        tree.append(token, parent, 0.5, 1, 0.5, "d")
    batch = EditBatch(50)
    history = History(
        SamplingParams(repetition_penalty=1.37, bad_words=words), prompt + answer, len(prompt), frozenset()
    )
    history.edit(batch, 0, tree)
    penalty = RepetitionPenaltyLogitsProcessor(1.37)
    banned = NoBadWordsLogitsProcessor([list(word) for word in words], eos_token_id=None)
    for row, path in enumerate(([], [3], [9])):
        ids = torch.tensor([prompt + answer + path])
        asked = draws([(Sampling(0.0), range(3))], penalties=batch.penalties(3, logits.device))
        assert torch.equal(edited_logits(logits, asked)[row], banned(ids, penalty(ids, logits[row : row + 1]))[0])


@pytest.mark.parametrize("kind", ["id", "string"])
@pytest.mark.parametrize("most", [7, 8, 9])
def test_the_first_of_a_stop_and_the_most_tokens_ends_an_answer_inside_an_accepted_run(
    make_engine: MakeEngine, kind: str, most: int
) -> None:
    free = run(make_engine(50), [Request("r", "t", [4], Sampling(1.0, seed=3), 20)])["r"]
    ids, text = tokens(free), [text for frame in free for text in frame.texts]
    assert ids.index(ids[7]) == 7
    stop_ids, stop = (frozenset({ids[7]}), ()) if kind == "id" else (frozenset[int](), (text[7],))
    parameters = SamplingParams(stop=stop, logprobs=0)
    engine = make_engine(50, [EverythingDrafter(50, 1)])
    frames = run(
        engine, [Request("r", "t", [4], Sampling(1.0, seed=3), most, stop_ids=stop_ids, parameters=parameters)]
    )["r"]
    said, likely, finish = outcome_of(frames)
    assert (said, finish) == (ids[: min(most, 8)], Finish.LENGTH if most < 8 else Finish.STOP)
    assert isinstance(likely, list)
    assert len(likely) == len(said) == engine.tally.tokens
    assert frames[-1].usage is not None
    assert frames[-1].usage.completion_tokens == len(said)
    assert frames[-1].usage.accepted_tokens == sum(name != "" for frame in frames for name in frame.guessed_by)


def test_a_rows_likelihoods_are_the_same_to_the_bit_in_any_company() -> None:
    logits = torch.randn(37, 1013, generator=torch.Generator().manual_seed(2)) * 5
    logits[3, 100:140] = logits[3].amax()
    ids = list(range(37))
    together = score(logits, ids, 20)
    assert together[3].top[:3] == [
        (100, together[3].top[0][1]),
        (101, together[3].top[0][1]),
        (102, together[3].top[0][1]),
    ]
    wide = torch.zeros(37, 1021)
    wide[:, 3:1016] = logits
    for row in ids:
        assert score(logits[row : row + 1].clone(), [row], 20) == [together[row]]
        assert score(wide[row : row + 1, 3:1016], [row], 20) == [together[row]]
