"""Engines under test, requests for them, and what they say."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from outrider.kernels.pool import KvPool
from outrider.kernels.race_sample import Truncation
from outrider.models.llama import LlamaModel
from outrider.models.sampling import Sampling
from outrider.models.speculation import Acceptance, Drafter, DrafterContext
from outrider.models.speculation.random_drafter import RandomDrafter
from outrider.models.text import Tokenizer
from outrider.verifier.decode.answer import Answers
from outrider.verifier.decode.engine import Engine
from outrider.verifier.decode.outcome import Outcome
from outrider.verifier.decode.page_cache import PageCache
from outrider.verifier.decode.runner import Drawn, Runner, Work
from outrider.verifier.requests import sequence
from outrider.verifier.requests.sequence import Request
from outrider.verifier.scheduling.cost_curve import CostCurve
from outrider.verifier.scheduling.estimate import Estimate
from outrider.verifier.scheduling.scheduler import Scheduler
from outrider.verifier.speculation.guessing import Guessing, TargetView
from outrider.verifier.speculation.worth import Always, Worth
from outrider.wire.frames import Frame

VOCABULARY = 50
MakeEngine = Callable[..., Engine]
Rows = dict[str, tuple[int, bool]]
ALWAYS_PAYS = CostCurve([1, 1000], [1.0, 1.0])


class CheckedEngine(Engine):
    """An engine whose pages are checked after everything that is done to it."""

    def step(self) -> Outcome:
        outcome = super().step()
        self.scheduler.check()
        return outcome

    def cancel(self, request_id: str, reason: str | None = None) -> bool:
        found = super().cancel(request_id, reason)
        self.scheduler.check()
        return found


def build_engine(
    model: LlamaModel,
    tokenizer: Tokenizer,
    scheduler: Scheduler,
    drafters: Sequence[Drafter] = (),
    cost: CostCurve = ALWAYS_PAYS,
    rule: Acceptance | None = None,
    worth: Worth | None = None,
    cache: Callable[[KvPool, Scheduler], PageCache] | None = None,
    timer: Callable[[], float] = time.perf_counter,
) -> Engine:
    """An engine over ``model`` whose drafters are asked at every step, unless ``worth`` decides."""
    runner = Runner(model, scheduler.pages.total, scheduler.limits.page_size, rule)
    view = TargetView(runner.rule, model.config.vocab_size, runner.hidden)
    guessing = Guessing(view, scheduler, cost, drafters, worth or Always(), timer)
    pages = None if cache is None else cache(runner.pool, scheduler)
    return CheckedEngine(runner, scheduler, guessing, Estimate(cost), Answers(tokenizer), pages, timer)


def random_drafter() -> RandomDrafter:
    return RandomDrafter(DrafterContext("toy", VOCABULARY, 256))


def request(name: str, prompt: int = 4, answer: int = 8, tenant: str = "t", **more: object) -> Request:
    dice = random.Random(name)
    tokens = [dice.randrange(VOCABULARY) for _ in range(prompt)]
    return Request(name, tenant, tokens, Sampling(1.0, seed=dice.getrandbits(60)), answer, **more)  # type: ignore[arg-type]


def requests(count: int, max_tokens: int = 24, seed: int = 0) -> list[Request]:
    """Mixed prompts and parameters, some prompts with a common beginning."""
    dice = random.Random(seed)
    common = [dice.randrange(VOCABULARY) for _ in range(20)]
    made = []
    for index in range(count):
        prompt = common[: dice.choice([0, 20])] + [dice.randrange(VOCABULARY) for _ in range(dice.randint(1, 40))]
        truncation = dice.choice([Truncation(), Truncation(top_k=5), Truncation(top_p=0.8, min_p=0.05)])
        sampling = Sampling(dice.choice([0.0, 0.7, 1.3]), truncation, dice.getrandbits(64))
        made.append(Request(f"r{index}", "t", prompt, sampling, max_tokens))
    return made


def run(engine: Engine, wanted: Sequence[Request]) -> dict[str, list[Frame]]:
    """Frames of all requests, with the pages checked after every step."""
    for request in wanted:
        engine.submit(request)
    frames: dict[str, list[Frame]] = defaultdict(list)
    while engine.busy:
        for request, frame in engine.step().frames:
            frames[request.id].append(frame)
        engine.scheduler.check()
    return frames


def tokens(frames: Sequence[Frame]) -> list[int]:
    """Tokens of a request, whose frames must join without a gap."""
    said: list[int] = []
    for frame in frames:
        assert frame.first_index == len(said)
        said.extend(frame.tokens)
    return said


def said(engine: Engine, wanted: Sequence[Request]) -> dict[str, list[int]]:
    return {name: tokens(frames) for name, frames in run(engine, wanted).items()}


def told(frames: list[Frame]) -> tuple[list[int], object, object]:
    """Tokens with the echoed prompt, their likelihoods to the bit, and the end."""
    ids = [token for frame in frames for token in frame.tokens]
    likely = [entry for frame in frames for entry in frame.likelihoods or []]
    return ids, likely, frames[-1].finish


def watch(engine: Engine) -> list[Rows]:
    """From now on, every step's rows by request, and whether they are a prompt's."""
    seen: list[Rows] = []
    runs = engine.runner.run

    def watched(works: Sequence[Work]) -> list[Drawn]:
        seen.append({work.sequence.request.id: (len(work.tokens), work.guesses is None) for work in works})
        return runs(works)

    engine.runner.run = watched  # type: ignore[method-assign]
    return seen


@contextmanager
def preemptions(engine: Engine) -> Iterator[list[tuple[str, int]]]:
    """Who is preempted meanwhile, and how many tokens had been generated by then."""
    seen: list[tuple[str, int]] = []
    preempt = engine.scheduler._preempt

    def watched(sequence: sequence.Sequence) -> None:
        seen.append((sequence.request.id, engine.tally.tokens))
        preempt(sequence)

    engine.scheduler._preempt = watched  # type: ignore[method-assign]
    yield seen
    engine.scheduler._preempt = preempt  # type: ignore[method-assign]
