"""The verifier's step: schedule, guess, run the target, accept, commit, publish."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from outrider.models.sampling import Sampling
from outrider.models.speculation import Drafter, DraftTree, MergedTree, merge
from outrider.verifier.accept import Accepted, walk
from outrider.verifier.answer import Answer, Answers
from outrider.verifier.budget import Calibrator, CostCurve, Pace, buy
from outrider.verifier.likelihood import Score, score
from outrider.verifier.runner import NOTHING, BrokenLogits, Drawn, Runner, Work
from outrider.verifier.scheduler import Plan, Scheduler
from outrider.verifier.sequence import Request, Sequence
from outrider.wire.frames import Finish, Frame

_NO_TOKEN = "the request's own rules (bad_words, min_tokens, a grammar) leave no token to go on with"


@dataclass(frozen=True, slots=True)
class Opened:
    """A sequence that drafters may start to guess at."""

    number: int
    tokens: list[int]
    sampling: Sampling
    max_nodes: int
    drafters: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Committed:
    """Tokens that the target decided behind ``length`` others."""

    number: int
    length: int
    tokens: list[int]


@dataclass(slots=True)
class Outcome:
    """What a step did, for others to hear: frames for readers, the rest for drafters."""

    frames: list[tuple[Request, Frame]] = field(default_factory=list)
    opened: list[Opened] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Tally:
    """Running totals since start."""

    steps: int = 0
    rows: int = 0
    tokens: int = 0
    prefilled: int = 0
    guessed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    accepted: dict[str, int] = field(default_factory=lambda: defaultdict(int))


class Engine:
    """All running sequences and the target that decides them. Called from one thread.

    Drafting and verifying only return values; `_commit` alone changes what a sequence is.
    """

    def __init__(
        self,
        runner: Runner,
        scheduler: Scheduler,
        cost: CostCurve,
        answers: Answers,
        drafters: Seq[Drafter] = (),
    ) -> None:
        self._runner, self._cost, self._answers = runner, cost, answers
        self.scheduler = scheduler
        self._local = list(drafters)
        self._calibrators: dict[tuple[str, bool], Calibrator] = defaultdict(Calibrator)
        self._pace = Pace()
        self._sequences: dict[int, Sequence] = {}
        self._streams: dict[int, Answer] = {}
        self._by_request: dict[str, int] = {}
        self._next_number = 1
        self._said = Outcome()
        self.tally = Tally()

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.scheduler.running or self.scheduler.waiting)

    @property
    def has_news(self) -> bool:
        """Whether something was said since the last step."""
        said = self._said
        return bool(said.frames or said.opened or said.committed or said.closed)

    @property
    def load(self) -> int:
        """Requests running and waiting."""
        return len(self._sequences)

    def submit(self, request: Request) -> int:
        """Takes a request and returns how many wait before it; `QueueFull` when it cannot."""
        ahead = len(self.scheduler.waiting)
        sequence = Sequence.start(request, self._next_number, self._runner.dice(request.sampling))
        self.scheduler.submit(sequence)
        self._next_number += 1
        number = sequence.number
        self._sequences[number], self._by_request[request.id] = sequence, number
        self._streams[number] = self._answers.open(request)
        if (finish := self._streams[number].replay(request.emitted)) is not None:
            self._end(sequence, finish, self._streams[number].frame([], [], []))
        elif request.speculates:
            self._open(sequence)
        return ahead

    def _open(self, sequence: Sequence) -> None:
        request = sequence.request
        most = 2 * (request.max_nodes or self.scheduler.limits.guesses_each)
        tokens = list(sequence.tokens)
        self._said.opened.append(Opened(sequence.number, tokens, request.sampling, min(most, 63), request.drafters))
        for drafter in self._local:
            if request.admits(drafter.name):
                drafter.open(sequence.number, sequence.tokens, request.sampling, min(most, 63))

    def cancel(self, request_id: str) -> bool:
        """Ends a request where it stands; whether it was running."""
        number = self._by_request.get(request_id)
        if number is None:
            return False
        sequence = self._sequences[number]
        self._end(sequence, Finish.CANCELLED, self._streams[number].frame([], [], []))
        return True

    def offer(self, number: int, tree: DraftTree, source: str) -> None:
        """Takes in a tree for a sequence, in place of the last one from the same source."""
        sequence = self._sequences.get(number)
        if sequence is None or not sequence.request.admits(tree.drafter):
            return
        behind = len(sequence.tokens) - tree.length
        current = tree.after(sequence.tokens[tree.length :]) if behind >= 0 else None
        if current is not None:
            sequence.trees[source] = current

    def step(self) -> Outcome:
        """Moves every running sequence, and tells what happened since the last step."""
        began = time.perf_counter()
        plan = self.scheduler.plan()
        works = self._works(plan, self._guess(plan))
        try:
            drawn = self._runner.run(works) if works else []
        except BrokenLogits as error:
            self._fail(works, str(error))
        else:
            for work, result in zip(works, drawn, strict=True):
                self._commit(work, result)
            self._count(works)
            self._time(plan, works, time.perf_counter() - began)
        said, self._said = self._said, Outcome()
        return said

    def _guess(self, plan: Plan) -> list[MergedTree]:
        for drafter in self._local:
            for number, tree in drafter.draft():
                self.offer(number, tree, f"local:{drafter.name}")
        limits = self.scheduler.limits
        least = self._cost.least_value(len(plan.decoding), plan.rows, limits.guesses)
        candidates = [self._candidates(sequence, least) for sequence in plan.decoding]
        caps = [sequence.request.max_nodes or limits.guesses_each for sequence in plan.decoding]
        surcharge = self._pace(len(plan.decoding), True) / self._pace(len(plan.decoding), False)
        bought = buy(candidates, caps, plan.rows, limits.guesses, self._cost, surcharge)
        return [self._fit(sequence, tree) for sequence, tree in zip(plan.decoding, bought, strict=True)]

    def _candidates(self, sequence: Sequence, least: float) -> MergedTree:
        depth = min(sequence.left - 1, self.scheduler.limits.context_length - len(sequence.tokens) - 1)
        if depth <= 0 or not sequence.trees:
            return MergedTree()
        greedy = sequence.request.sampling.greedy
        merged = merge(sequence.trees.values(), depth, lambda drafter: self._calibrators[drafter, greedy], least)
        return merged if sequence.guide is None else sequence.guide.prune(merged)

    def _fit(self, sequence: Sequence, tree: MergedTree) -> MergedTree:
        room = self.scheduler.room_for_guesses(sequence, len(tree))
        return tree if room == len(tree) else tree.take(range(room))

    def _works(self, plan: Plan, trees: Seq[MergedTree]) -> list[Work]:
        works = [
            Work(sequence, [sequence.tokens[-1], *tree.tokens], tree, True)
            for sequence, tree in zip(plan.decoding, trees, strict=True)
        ]
        for sequence, rows in plan.prefilling:
            chunk = sequence.tokens[sequence.cached : sequence.cached + rows]
            works.append(Work(sequence, chunk, None, rows == sequence.pending))
        return works

    def _commit(self, work: Work, drawn: Drawn) -> None:
        sequence, guesses = work.sequence, work.guesses
        self._echo(work, drawn.prompt)
        if guesses is None:
            self.scheduler.commit(sequence, sequence.cached + len(work.tokens))
            if work.draws:
                self._decide(sequence, Accepted([0], drawn.tokens), MergedTree(), drawn)
            return
        accepted = walk(guesses.tokens, guesses.parents, drawn.tokens)
        self._runner.keep(sequence, accepted.rows)
        cached = sequence.cached + len(accepted.rows)
        self._learn(sequence, guesses, accepted)
        self._decide(sequence, accepted, guesses, drawn)
        if sequence.finish is None:
            self.scheduler.commit(sequence, cached)

    def _echo(self, work: Work, scores: list[Score]) -> None:
        """Tells the tokens of the prompt that are known to the model by now, if anyone wants to hear them."""
        sequence = work.sequence
        first = sequence.cached + 1
        end = min(first + len(work.tokens), len(sequence.request.prompt))
        if sequence.echoed < end:
            for frame in self._streams[sequence.number].echo(sequence.echoed, end, scores, first):
                self._said.frames.append((sequence.request, frame))
            sequence.echoed = end

    def _decide(self, sequence: Sequence, accepted: Accepted, guesses: MergedTree, drawn: Drawn) -> None:
        length, stream = len(sequence.tokens), self._streams[sequence.number]
        by = [guesses.drafters[row - 1] for row in accepted.rows[1:]] + [""]
        able = [token for token in accepted.tokens if token != NOTHING]
        texts, finish = stream.take(able)
        tokens, by = able[: len(texts)], by[: len(texts)]
        finish = finish or self._spent(sequence, length + len(tokens))
        if finish is None and len(able) < len(accepted.tokens):
            finish = Finish.REFUSED
        sequence.tokens.extend(tokens)
        sequence.steps += 1
        right = sum(name != "" for name in by)
        sequence.accepted += right
        sequence.rejected += len(guesses) - right
        for name in filter(None, by):
            self.tally.accepted[name] += 1
        self.tally.tokens += len(tokens)
        frame = stream.frame(tokens, texts, by, _scores(sequence, accepted, tokens, drawn))
        if finish is not None:
            self._end(sequence, finish, frame, _NO_TOKEN if finish is Finish.REFUSED else None)
            return
        self._said.frames.append((sequence.request, frame))
        self._follow(sequence, length, tokens)

    def _spent(self, sequence: Sequence, length: int) -> Finish | None:
        full = length >= self.scheduler.limits.context_length
        done = length - len(sequence.request.prompt) >= sequence.request.max_tokens
        return Finish.LENGTH if full or done else None

    def _follow(self, sequence: Sequence, length: int, tokens: list[int]) -> None:
        if not sequence.request.speculates:
            return
        trees = {source: tree.after(tokens) for source, tree in sequence.trees.items()}
        sequence.trees = {source: tree for source, tree in trees.items() if tree is not None}
        self._said.committed.append(Committed(sequence.number, length, tokens))
        for drafter in self._local:
            drafter.commit(sequence.number, length, tokens)

    def _learn(self, sequence: Sequence, guesses: MergedTree, accepted: Accepted) -> None:
        reached = set(accepted.rows)
        greedy = sequence.request.sampling.greedy
        for node, (parent, drafter) in enumerate(zip(guesses.parents, guesses.drafters, strict=True)):
            self.tally.guessed[drafter] += 1
            if parent + 1 in reached:
                self._calibrators[drafter, greedy].learn(guesses.confidences[node], node + 1 in reached)

    def _end(self, sequence: Sequence, finish: Finish, frame: Frame, error: str | None = None) -> None:
        sequence.finish = finish
        self.scheduler.remove(sequence)
        number = sequence.number
        del self._sequences[number], self._by_request[sequence.request.id]
        last = self._streams.pop(number).last(frame, finish, sequence.usage(), error)
        self._said.frames.append((sequence.request, last))
        if sequence.request.speculates:
            self._said.closed.append(number)
            for drafter in self._local:
                drafter.close(number)

    def _fail(self, works: Seq[Work], why: str) -> None:
        for sequence in [work.sequence for work in works]:
            self._end(sequence, Finish.ERROR, self._streams[sequence.number].frame([], [], []), why)

    def _time(self, plan: Plan, works: Seq[Work], seconds: float) -> None:
        if plan.decoding and not plan.prefilling:
            rows = sum(len(work.tokens) for work in works)
            self._pace.learn(len(plan.decoding), rows > plan.rows, self._cost(rows), seconds)

    def _count(self, works: Seq[Work]) -> None:
        self.tally.steps += 1
        self.tally.rows += sum(len(work.tokens) for work in works)
        self.tally.prefilled += sum(len(work.tokens) for work in works if work.guesses is None)


def _scores(sequence: Sequence, accepted: Accepted, tokens: list[int], drawn: Drawn) -> list[Score] | None:
    """How likely the target held each of ``tokens``, where the request asks for it."""
    if drawn.logits is None or not tokens:
        return None if drawn.logits is None else []
    return score(drawn.logits[accepted.rows[: len(tokens)]], tokens, sequence.request.logprobs or 0)
