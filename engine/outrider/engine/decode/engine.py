"""The engine's step: schedule, guess, run the target, accept, commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from time import perf_counter, sleep

from outrider.engine.decode.answer import Answers
from outrider.engine.decode.audit import Auditor
from outrider.engine.decode.committer import Committer
from outrider.engine.decode.outcome import Outcome, QueuePlace, Tally
from outrider.engine.decode.page_cache import NoCache, PageCache
from outrider.engine.decode.places import Misplaced
from outrider.engine.decode.roster import Roster
from outrider.engine.decode.runner import BrokenLogits, DrawnRows, Runner, Work
from outrider.engine.decode.step_meter import StepMeter
from outrider.engine.logs import get_logger
from outrider.engine.requests.output import Finish
from outrider.engine.requests.sequence import Request, Sequence
from outrider.engine.scheduling.estimate import Estimate, TooLate
from outrider.engine.scheduling.plan import Plan
from outrider.engine.scheduling.scheduler import Scheduler
from outrider.engine.speculation import Drafter, DraftTree, MergedTree, Traits
from outrider.engine.speculation.policy.guessing import Guessing
from outrider.engine.telemetry import NoTelemetry, Telemetry

_log = get_logger("engine")
_NOTHING_S = 0.0005
"""Seconds that a step takes in which every sequence waits for its grammar."""
_MOST_FAULTS = 8
_LATE = {False: "the first token did not come in time", True: "the answer did not end in time"}


class Engine:
    """All running sequences and the target that decides their tokens. Called from one thread.

    Drafting and verifying only return values; only `Committer` changes a sequence's tokens.

    Args:
        runner: runs the target.
        scheduler: plans steps.
        guessing: buys the guesses that a step verifies.
        estimate: estimates how long requests will take.
        answers: creates answers.
        cache: gets full pages, and may bring pages that a sequence lacks.
        clock: seconds, to measure steps.
        audit_share: share of the finished answers that is replayed.
        telemetry: gets the events of steps.

    Attributes:
        auditor: replays finished answers between steps.
    """

    def __init__(
        self,
        runner: Runner,
        scheduler: Scheduler,
        guessing: Guessing,
        estimate: Estimate,
        answers: Answers,
        cache: PageCache | None = None,
        clock: Callable[[], float] = perf_counter,
        audit_share: float = 0.0,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.runner, self.scheduler, self.guessing, self.estimate = runner, scheduler, guessing, estimate
        self._cache: PageCache = cache or NoCache()
        self._answers, self._roster, self._faults = answers, Roster(), 0
        self._meter = StepMeter(guessing, estimate, telemetry or NoTelemetry(), clock)
        self.auditor = Auditor(runner, scheduler, audit_share)
        self._committer = Committer(
            runner, scheduler, guessing, estimate, self._roster, self._cache, self.tally, self.auditor.offer
        )

    @property
    def tally(self) -> Tally:
        """Running totals since start."""
        return self._meter.tally

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.scheduler.running or self.scheduler.waiting)

    @property
    def has_outputs(self) -> bool:
        """Whether there are outputs for readers since the last step."""
        return bool(self._committer.outcome.outputs)

    @property
    def has_news(self) -> bool:
        """Whether there is anything to deliver since the last step."""
        outcome = self._committer.outcome
        return bool(outcome.outputs or outcome.opened or outcome.committed or outcome.states or outcome.closed)

    @property
    def lossy(self) -> bool:
        """Whether the rule of acceptance changes the distribution of answers."""
        return self.runner.rule.lossy

    @property
    def load(self) -> int:
        """Number of requests, running and waiting."""
        return len(self._roster)

    def holds(self, request_id: str) -> bool:
        """Whether the engine has taken the request and not ended it."""
        return request_id in self._roster

    def sequence(self, request_id: str) -> Sequence | None:
        """The sequence of a request; None for an unknown one."""
        return self._roster.find(request_id)

    def take_outcome(self) -> Outcome:
        """Returns the outcome since the last call, for delivery."""
        return self._committer.take()

    def submit(self, request: Request) -> QueuePlace:
        """Takes a request and returns its place in the queue. Raises `QueueFull`, `NeverFits` or `TooLate`."""
        sequence = Sequence.start(request, self._roster.next_number(), self.runner.dice(request.sampling))
        sequence.lossy = self.runner.rule.lossy and request.speculates and not request.sampling.greedy
        queued, answer = self._queue(sequence), self._answers.open(request)
        self._roster.enter(sequence, answer)
        finish = answer.replay(request.emitted)
        if finish is not None:
            self._committer.end(sequence, finish, answer.output([], [], []))
        elif request.speculates:
            self._committer.open(sequence)
        if finish is None and self._cache.seek(sequence):
            self.scheduler.park(sequence)
        return queued

    def _queue(self, sequence: Sequence) -> QueuePlace:
        ahead = self.scheduler.submit(sequence)
        try:
            return QueuePlace(ahead, self.estimate.check(self.scheduler, sequence, self.scheduler.now()))
        except TooLate:
            self.scheduler.remove(sequence)
            raise

    def cancel(self, request_id: str, reason: str | None = None) -> bool:
        """Ends a request with a ``reason`` for its readers; False if the engine does not hold it."""
        sequence = self._roster.find(request_id)
        if sequence is None:
            return False
        self._committer.stop(sequence, Finish.CANCELLED, reason)
        return True

    def offer_pages(self, movable: Callable[[Request], bool], most: int) -> int:
        """Offers caches all pages of requests that are ``movable``, until they take ``most``; returns their number."""
        taken = 0
        for sequence in self._roster.sequences.values():
            if taken < most and movable(sequence.request):
                taken += self._cache.offer_all(sequence)
        return taken

    def release(self, movable: Callable[[Request], bool]) -> int:
        """Ends all requests that are ``movable``, for other engines to continue; returns their number."""
        released = [sequence for sequence in self._roster.sequences.values() if movable(sequence.request)]
        for sequence in released:
            self._committer.stop(sequence, Finish.CANCELLED, None)
        return len(released)

    def forget(self, tenant: str, reason: str) -> tuple[int, int]:
        """Ends a tenant's requests with a ``reason`` for their readers, and drops what local drafters and pages keep.

        Returns the number of requests and of pages.
        """
        ended = self._roster.of(tenant)
        for sequence in ended:
            self._committer.stop(sequence, Finish.CANCELLED, reason)
        self.guessing.forget(tenant)
        self.auditor.forget(tenant)
        return len(ended), self.scheduler.pages.forget(tenant)

    def expire(self) -> None:
        """Drops pages, and what local drafters keep of tenants, that nobody has used since the last call."""
        self.guessing.expire()
        self.runner.wipe(self.scheduler.pages.expire())

    def offer(self, number: int, tree: DraftTree, source: str) -> None:
        """Takes in a tree for a sequence; it replaces the last tree from the same source."""
        if (sequence := self._roster.sequences.get(number)) is not None:
            self.guessing.offer(sequence, tree, source)

    def seen_by(self, remote: Mapping[str, Traits]) -> None:
        """Notes which ``remote`` drafters need states of the target, by name."""
        self.guessing.seen_by(remote, self._roster.sequences.values())

    def swap(
        self, name: str, drafter: Drafter | None, *, tenant: str | None = None, version: str = "", judged: bool = True
    ) -> None:
        """Has another version of a local drafter guess from the next step on; see `Guessing.swap`."""
        self.guessing.swap(name, drafter, tenant, version, judged)

    def step(self) -> Outcome:
        """Runs one step over the running sequences; returns the outcome since the last step."""
        self._meter.begin()
        self._expire()
        plan = self.scheduler.plan()
        self.guessing.draft(plan, self._roster.sequences)
        trees = self.guessing.buy(plan)
        self.scheduler.fill(plan, sum([len(tree.tokens) for tree in trees]))
        works = self._works(plan, trees)
        if not works and self.scheduler.running:
            sleep(_NOTHING_S)
            return self.take_outcome()
        self._meter.run(works, len(self.scheduler.running) if self.scheduler.waiting else 0)
        self._committer.commit(self._run(works))
        self.scheduler.embeddings.ran(plan, self._meter.end(plan, works, self.busy))
        outcome = self.take_outcome()
        outcome.spans = self._meter.spans
        return outcome

    def audit(self) -> bool:
        """Replays a part of a finished answer, between two steps; whether there is more to replay."""
        if not self.auditor.busy:
            return False
        self._meter.pause()
        self.auditor.run()
        return self.auditor.busy

    def _expire(self) -> None:
        """Ends sequences whose deadline has passed, before they cost another step."""
        now = self.scheduler.now()
        for sequence in self._roster.overdue(now):
            self.tally.expired += 1
            self._committer.stop(sequence, Finish.TIMEOUT, _late(sequence, now))

    def _run(self, works: list[Work]) -> list[tuple[Work, DrawnRows]]:
        """Each of ``works`` and what it drew.

        A sequence whose draw is refused ends, and the others run again. If a step fails, its sequences run one by one,
        and those that fail alone end. After `_MOST_FAULTS` failures in a row the error is raised: the engine itself
        is at fault.
        """
        try:
            layers = self.guessing.layers([work.sequence for work in works])
            drawn = self.runner.run(works, layers) if works else []
        except Misplaced as error:
            self.tally.refused_draws += 1
            self._fail(error.sequence, error)
            return self._run([work for work in works if work.sequence is not error.sequence])
        except Exception as error:
            if len(works) > 1:
                _log.warning("a step failed, and its sequences run one by one", sequences=len(works), exc_info=error)
                return [ran for work in works for ran in self._run([work])]
            self._faults += 1
            if self._faults > _MOST_FAULTS:
                raise
            self._fail(works[0].sequence, error)
            return []
        self._faults = 0 if works else self._faults
        return [*zip(works, drawn, strict=True)]

    def _works(self, plan: Plan, trees: Seq[MergedTree]) -> list[Work]:
        works = [
            Work(sequence, [sequence.tokens[-1], *tree.tokens], tree, sequence.request.pooling is None)
            for sequence, tree in zip(plan.decoding, trees, strict=True)
        ]
        for sequence, rows in plan.prefilling:
            chunk = sequence.tokens[sequence.cached : sequence.cached + rows]
            draws = rows == sequence.pending and sequence.request.pooling is None
            works.append(Work(sequence, chunk, None, draws))
        return works

    def _fail(self, sequence: Sequence, error: Exception) -> None:
        known = isinstance(error, BrokenLogits | Misplaced)
        why = str(error) if known else f"the step failed: {type(error).__name__}"
        _log.error("a request failed a step", request=sequence.request.id, exc_info=error)
        self._committer.stop(sequence, Finish.ERROR, why)


def _late(sequence: Sequence, now: float) -> str:
    """Which deadline of ``sequence`` has passed."""
    return _LATE[sequence.request.end_by <= now]
