"""The verifier's step: schedule, guess, run the target, accept, commit, publish."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from math import inf

from outrider.mesh.telemetry import get_logger, timeline
from outrider.models.speculation import NO_GUESSES, Drafter, DraftTree, MergedTree
from outrider.verifier.acceptance.accept import Accepted, walk
from outrider.verifier.decode.answer import Answer, Answers
from outrider.verifier.decode.outcome import Committed, Opened, Outcome, Queued, Tally
from outrider.verifier.decode.page_cache import NoCache, PageCache
from outrider.verifier.decode.runner import NOTHING, BrokenLogits, Drawn, Runner, Work
from outrider.verifier.decode.step_events import StepEvent
from outrider.verifier.logits.likelihood import Score, score
from outrider.verifier.requests.sequence import Request, Sequence
from outrider.verifier.scheduling.cost_curve import CostCurve
from outrider.verifier.scheduling.estimate import Estimate, TooLate
from outrider.verifier.scheduling.scheduler import Plan, Scheduler
from outrider.verifier.speculation.guessing import Guessing, TargetView
from outrider.verifier.speculation.worth import Worth
from outrider.wire.frames import Finish, Frame

_log = get_logger("engine")
_MOST_FAULTS = 8
_LATE = {False: "the first token did not come in time", True: "the answer did not end in time"}
_NO_TOKEN = "the request's own rules (bad_words, min_tokens, a grammar) leave no token to go on with"


class Engine:
    """All running sequences and the target that decides them. Called from one thread.

    Drafting and verifying only return values; `_commit` alone changes what a sequence is. ``clock`` tells the seconds
    by which steps and drafters are timed.
    """

    def __init__(
        self,
        runner: Runner,
        scheduler: Scheduler,
        cost: CostCurve,
        answers: Answers,
        drafters: Seq[Drafter] = (),
        worth: Worth | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._runner, self._answers, self._clock = runner, answers, clock
        view = TargetView(runner.rule, runner.model.config.vocab_size, runner.hidden)
        self.guessing = Guessing(view, scheduler, cost, drafters, worth or Worth(), clock)
        self.scheduler, self.estimate = scheduler, Estimate(cost)
        self.cache: PageCache = NoCache()
        self._sequences: dict[int, Sequence] = {}
        self._streams: dict[int, Answer] = {}
        self._by_request: dict[str, int] = {}
        self._dated: dict[int, Sequence] = {}
        self._next_number = 1
        self._said = Outcome()
        self._ended, self._faults = 0.0, 0
        self.tally = Tally(guesses=self.guessing.counts)

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.scheduler.running or self.scheduler.waiting)

    @property
    def has_frames(self) -> bool:
        """Whether readers were told something since the last step."""
        return bool(self._said.frames)

    @property
    def has_news(self) -> bool:
        """Whether something was said since the last step."""
        said = self._said
        return bool(said.frames or said.opened or said.committed or said.closed)

    @property
    def lossy(self) -> bool:
        """Whether guesses are accepted by a rule that changes the answers' law."""
        return self._runner.rule.lossy

    @property
    def load(self) -> int:
        """Requests running and waiting."""
        return len(self._sequences)

    def holds(self, request_id: str) -> bool:
        """Whether it has taken the request and not ended it."""
        return request_id in self._by_request

    def tell(self) -> Outcome:
        """What was said since the last time."""
        said, self._said = self._said, Outcome()
        said.quiet = self.guessing.quiet
        return said

    def submit(self, request: Request) -> Queued:
        """Takes a request and returns where it stands; `QueueFull`, `NeverFits` or `TooLate` when it cannot."""
        sequence = Sequence.start(request, self._next_number, self._runner.dice(request.sampling))
        sequence.lossy = self._runner.rule.lossy and request.speculates and not request.sampling.greedy
        queued = self._queue(sequence)
        self._next_number += 1
        number = sequence.number
        if sequence.due < inf:
            self._dated[number] = sequence
        self._sequences[number], self._by_request[request.id] = sequence, number
        self._streams[number] = self._answers.open(request)
        if (finish := self._streams[number].replay(request.emitted)) is not None:
            self._end(sequence, finish, self._streams[number].frame([], [], []))
        elif request.speculates:
            self._said.opened.append(Opened(number, self.guessing.open(sequence), request.drafters))
        if finish is None and self.cache.seek(sequence):
            self.scheduler.park(sequence)
        return queued

    def _queue(self, sequence: Sequence) -> Queued:
        ahead = self.scheduler.submit(sequence)
        try:
            return Queued(ahead, self.estimate.check(self.scheduler, sequence, self.scheduler.now()))
        except TooLate:
            self.scheduler.remove(sequence)
            raise

    def resume(self, number: int) -> None:
        """Has a sequence go on that waited for pages."""
        if (sequence := self._sequences.get(number)) is not None:
            self.scheduler.resume(sequence)

    def cancel(self, request_id: str, reason: str | None = None) -> bool:
        """Ends a request where it stands, with a ``reason`` for all its readers; whether it was running."""
        number = self._by_request.get(request_id)
        if number is None:
            return False
        sequence = self._sequences[number]
        self._end(sequence, Finish.CANCELLED, self._streams[number].frame([], [], []), reason)
        return True

    def offer(self, number: int, tree: DraftTree, source: str) -> None:
        """Takes in a tree for a sequence, in place of the last one from the same source."""
        if (sequence := self._sequences.get(number)) is not None:
            self.guessing.offer(sequence, tree, source)

    def step(self) -> Outcome:
        """Moves every running sequence, and tells what happened since the last step."""
        began, self._ended = self._ended or self._clock(), 0.0
        said_before = self.tally.tokens
        self._expire()
        plan = self.scheduler.plan()
        self.guessing.draft(plan, self._sequences)
        trees = self.guessing.buy(plan)
        self.scheduler.fill(plan, sum(map(len, trees)))
        crowd = len(self.scheduler.running) if self.scheduler.waiting else 0
        works = self._works(plan, trees)
        event = StepEvent(works) if works and timeline() is not None else None
        for work, drawn in self._run(works):
            self._commit(work, drawn)
        self._count(works)
        ended = self._clock()
        self._time(plan, works, self.tally.tokens - said_before, ended - began)
        if event is not None:
            event.note(began, ended, self.guessing.waited)
        if crowd:
            self.tally.crowded(crowd, self.tally.tokens - said_before, ended - began)
        if works and not plan.prefilling and self.busy:
            self._ended = ended
        return self.tell()

    def _run(self, works: list[Work]) -> Iterator[tuple[Work, Drawn]]:
        """Each of ``works`` and what it drew, to be committed at once.

        Where a step fails, its sequences run one by one, and only those end that fail alone: elsewhere they would do it
        again. That nothing succeeds any more is the verifier's own fault.
        """
        try:
            drawn = self._runner.run(works) if works else []
        except Exception as error:
            if len(works) > 1:
                for work in works:
                    yield from self._run([work])
                return
            self._faults += 1
            if self._faults > _MOST_FAULTS:
                raise
            self._fail(works[0].sequence, error)
        else:
            self._faults = 0 if works else self._faults
            yield from zip(works, drawn, strict=True)

    def _expire(self) -> None:
        """Ends sequences whose time is over before they cost a step more."""
        now = self.scheduler.now()
        for sequence in [sequence for sequence in self._dated.values() if sequence.due <= now]:
            self.tally.expired += 1
            self._end(sequence, Finish.TIMEOUT, self._streams[sequence.number].frame([], [], []), _late(sequence, now))

    def _time(self, plan: Plan, works: Seq[Work], tokens: int, seconds: float) -> None:
        """Takes in how long a step took."""
        rows = sum(len(work.tokens) for work in works)
        self.guessing.time(plan, rows, seconds)
        self.estimate.step(
            rows=rows, prompt_rows=plan.prompt_rows, decoding=len(plan.decoding), tokens=tokens, seconds=seconds
        )

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
        if sequence.echoed < len(sequence.request.prompt):
            self._echo(work, drawn.prompt)
        if guesses is None:
            self.scheduler.commit(sequence, sequence.cached + len(work.tokens))
            self.cache.offer(sequence)
            if work.draws:
                self._decide(sequence, Accepted([0], drawn.tokens), NO_GUESSES, drawn)
            return
        accepted = walk(guesses.tokens, guesses.parents, drawn.tokens)
        cached = sequence.cached + len(accepted.rows)
        if guesses:
            self._runner.keep(sequence, accepted.rows)
            self.guessing.learn(sequence, guesses, accepted)
        self._decide(sequence, accepted, guesses, drawn)
        if sequence.finish is None:
            self.scheduler.commit(sequence, cached)
            self.cache.offer(sequence)

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
        right = len(by) - by.count("")
        sequence.accepted += right
        sequence.rejected += len(guesses) - right
        self.tally.tokens += len(tokens)
        self.scheduler.served(sequence, len(tokens))
        drafts = stream.drafts(guesses, accepted.rows, len(tokens))
        frame = stream.frame(tokens, texts, by, _scores(sequence, accepted, tokens, drawn), drafts)
        if finish is not None:
            self._end(sequence, finish, frame, _why_refused(sequence) if finish is Finish.REFUSED else None)
            return
        self._said.frames.append((sequence.request, frame))
        self._follow(sequence, length, tokens, accepted.rows[-1])

    def _spent(self, sequence: Sequence, length: int) -> Finish | None:
        full = length >= self.scheduler.limits.context_length
        done = length - len(sequence.request.prompt) >= sequence.request.max_tokens
        return Finish.LENGTH if full or done else None

    def _follow(self, sequence: Sequence, length: int, tokens: list[int], row: int) -> None:
        if not sequence.request.speculates:
            return
        self._said.committed.append(Committed(sequence.number, length, tokens))
        self.guessing.follow(sequence, length, tokens, row)

    def _end(self, sequence: Sequence, finish: Finish, frame: Frame, error: str | None = None) -> None:
        sequence.finish = finish
        self.cache.leave(sequence)
        self.scheduler.remove(sequence)
        number = sequence.number
        del self._sequences[number], self._by_request[sequence.request.id]
        self._dated.pop(number, None)
        counted = sequence.request.max_tokens and not sequence.request.handed
        if finish in (Finish.STOP, Finish.LENGTH) and counted:
            self.estimate.ended(sequence)
        usage = None if finish is Finish.TIMEOUT and not sequence.admitted else sequence.usage()
        last = self._streams.pop(number).last(frame, finish, usage, error)
        self._said.frames.append((sequence.request, last))
        if sequence.request.speculates:
            self._said.closed.append(number)
            self.guessing.close(sequence)

    def _fail(self, sequence: Sequence, error: Exception) -> None:
        why = str(error) if isinstance(error, BrokenLogits) else f"the step failed: {type(error).__name__}"
        _log.error("a request failed a step", request=sequence.request.id, exc_info=error)
        self._end(sequence, Finish.ERROR, self._streams[sequence.number].frame([], [], []), why)

    def _count(self, works: Seq[Work]) -> None:
        self.tally.steps += 1
        self.tally.rows += sum(len(work.tokens) for work in works)
        self.tally.prefilled += sum(len(work.tokens) for work in works if work.guesses is None)


def _scores(sequence: Sequence, accepted: Accepted, tokens: list[int], drawn: Drawn) -> list[Score] | None:
    """How likely the target held each of ``tokens``, where the request asks for it."""
    if drawn.logits is None or not tokens:
        return None if drawn.logits is None else []
    return score(drawn.logits[accepted.rows[: len(tokens)]], tokens, sequence.request.logprobs or 0)


def _why_refused(sequence: Sequence) -> str:
    """Why there is no token to go on with."""
    return (sequence.guide and sequence.guide.failure) or _NO_TOKEN


def _late(sequence: Sequence, now: float) -> str:
    """Which deadline of ``sequence`` has passed."""
    return _LATE[sequence.request.end_by <= now]
