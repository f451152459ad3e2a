"""Applies a step's decisions: extends or ends sequences, and collects outputs for readers and news for drafters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as Seq

from outrider.engine.decode.outcome import CommittedStates, CommittedTokens, OpenedSequence, Outcome, Tally
from outrider.engine.decode.page_cache import PageCache
from outrider.engine.decode.roster import Roster
from outrider.engine.decode.runner import NOTHING, DrawnRows, Runner, Work
from outrider.engine.logits.likelihood import Score, score
from outrider.engine.requests.output import Finish, Output
from outrider.engine.requests.sequence import Request, Sequence
from outrider.engine.scheduling.estimate import Estimate
from outrider.engine.scheduling.scheduler import Scheduler
from outrider.engine.speculation import NO_GUESSES, MergedTree
from outrider.engine.speculation.acceptance.accept import AcceptedPath, walk
from outrider.engine.speculation.drafters.states import States
from outrider.engine.speculation.policy.guessing import Guessing
from outrider.engine.speculation.trees.tree import PREDICTION
from torch import Tensor
from torch.nn.functional import normalize

_NO_NUMBERS = "the target's states are not numbers"
_NO_TOKEN = "the request's own rules (bad_words, min_tokens, allowed_token_ids, a grammar) leave no token to go on with"


class Committer:
    """Applies the target's decisions to sequences, and collects the outcome for readers and drafters.

    ``audit`` gets each sequence whose answer is complete.

    Attributes:
        outcome: outcome since the last `take`.
    """

    def __init__(
        self,
        runner: Runner,
        scheduler: Scheduler,
        guessing: Guessing,
        estimate: Estimate,
        roster: Roster,
        cache: PageCache,
        tally: Tally,
        audit: Callable[[Sequence], None],
    ) -> None:
        self._keep, self._scheduler, self._guessing, self._estimate = runner.keep, scheduler, guessing, estimate
        self._roster, self._cache, self._tally, self._audit = roster, cache, tally, audit
        self._charge = scheduler.counters.charge_output
        self.outcome = Outcome()

    def take(self) -> Outcome:
        """Returns the outcome since the last call."""
        outcome, self.outcome = self.outcome, Outcome()
        outcome.paused = self._guessing.paused
        return outcome

    def open(self, sequence: Sequence) -> None:
        """Announces a new sequence to drafters."""
        opening = self._guessing.open(sequence)
        self.outcome.opened.append(OpenedSequence(sequence.number, opening, sequence.request))

    def commit(self, step: Seq[tuple[Work, DrawnRows]]) -> None:
        """Applies what the rows of a step's sequences drew."""
        paths = [_path(work, drawn) for work, drawn in step]
        trees = zip(step, paths, strict=True)
        self._keep([(work.sequence, p.rows) for (work, _), p in trees if p is not None and len(p.rows) > 1])
        lengths: list[int] = []
        for (work, drawn), path in zip(step, paths, strict=True):
            sequence, start, length = work.sequence, work.sequence.cached, len(work.sequence.tokens)
            self._apply(work, drawn, path)
            if path is not None:
                lengths.append(len(sequence.tokens) - length)
            if drawn.states is not None and sequence.finish is None and sequence.request.speculates:
                self._show(sequence, start, drawn.states if path is None else drawn.states.at(path.rows))
        for tokens, sequences in Counter(lengths).items():
            self._tally.lengths.observe(tokens, sequences)

    def _apply(self, work: Work, drawn: DrawnRows, accepted: AcceptedPath | None) -> None:
        """Applies one sequence's draws; ``accepted`` is None for a chunk of prompt."""
        sequence = work.sequence
        if drawn.pooled is not None:
            self._embed(sequence, len(work.tokens), drawn.pooled)
            return
        if sequence.echoed < len(sequence.request.prompt):
            self._echo(work, drawn.prompt)
        if accepted is None or work.guesses is None:
            self._scheduler.commit(sequence, sequence.cached + len(work.tokens))
            self._cache.offer(sequence)
            if work.draws:
                self._decide(sequence, AcceptedPath([0], drawn.tokens), NO_GUESSES, drawn)
            return
        cached = sequence.cached + len(accepted.rows)
        if work.guesses.tokens:
            self._guessing.learn(sequence, work.guesses, accepted)
        self._decide(sequence, accepted, work.guesses, drawn)
        if sequence.finish is None:
            self._scheduler.commit(sequence, cached)
            self._cache.offer(sequence)

    def _embed(self, sequence: Sequence, rows: int, pooled: Tensor) -> None:
        """Adds ``rows`` of a text, pooled to [hidden_size], to its embedding; the last ones end the request.

        A preempted text begins anew.
        """
        before = sequence.pooled if sequence.cached and sequence.request.pooling == "mean" else None
        sequence.pooled = pooled if before is None else before + pooled
        self._scheduler.commit(sequence, sequence.cached + rows)
        self._cache.offer(sequence)
        if sequence.pending:
            return
        self._on_first_token(sequence)
        output, vector = self._roster.answers[sequence.number].output([], [], []), normalize(sequence.pooled, dim=0)
        if not vector.isfinite().all():
            self.end(sequence, Finish.ERROR, output, _NO_NUMBERS)
            return
        output.embedding = vector.cpu().numpy().astype("<f4").tobytes()
        self.end(sequence, Finish.STOP, output)

    def _show(self, sequence: Sequence, start: int, states: States) -> None:
        """Passes ``states`` of tokens from ``start`` on to drafters, without those that drafters have already.

        Those are computed again after a preemption.
        """
        known, end = max(sequence.stated - start, 0), start + len(states.rows)
        if known < len(states.rows):
            sequence.stated = end
            shown = states.at(slice(known, None))
            if self._guessing.see(sequence, start + known, shown):
                self.outcome.states.append(CommittedStates(sequence.number, start + known, shown))

    def _echo(self, work: Work, scores: list[Score]) -> None:
        """Adds outputs of the prompt's tokens that have been computed, if the request echoes them."""
        sequence = work.sequence
        first = sequence.cached + 1
        end = min(first + len(work.tokens), len(sequence.request.prompt))
        if sequence.echoed < end:
            for output in self._roster.answers[sequence.number].echo(sequence.echoed, end, scores, first):
                self.outcome.outputs.append((sequence.request, output))
            sequence.echoed = end

    def _decide(self, sequence: Sequence, accepted: AcceptedPath, guesses: MergedTree, drawn: DrawnRows) -> None:
        length, answer = len(sequence.tokens), self._roster.answers[sequence.number]
        request, allowed = sequence.request, accepted.tokens
        if NOTHING in allowed:
            allowed = [token for token in allowed if token != NOTHING]
        texts, finish = answer.take(allowed)
        tokens = allowed[: len(texts)]
        finish = finish or self._reached_limit(request, length + len(tokens))
        if finish is None and len(allowed) < len(accepted.tokens):
            finish = Finish.REFUSED
        sequence.tokens += tokens
        sequence.steps += 1
        drafters = _drafters(sequence, guesses, accepted, len(tokens)) if guesses.tokens else [""] * len(tokens)
        if not sequence.first_at:
            self._on_first_token(sequence)
        self._tally.tokens += len(tokens)
        self._charge(request.tenant, len(tokens), request.weight)
        drafts = answer.drafts(guesses, accepted.rows, len(tokens)) if request.speculation.return_drafts else None
        scores = None if drawn.logits is None else _scores(request, accepted, tokens, drawn.logits)
        output = answer.output(tokens, texts, drafters, scores, drafts)
        if finish is not None:
            self.end(sequence, finish, output, _why_refused(sequence) if finish is Finish.REFUSED else None)
            return
        self.outcome.outputs.append((request, output))
        if request.speculates:
            self.outcome.committed.append(CommittedTokens(sequence.number, length, tokens))
            self._guessing.follow(sequence, length, tokens)

    def _on_first_token(self, sequence: Sequence) -> None:
        sequence.first_at = self._scheduler.now()
        if not sequence.request.prefill_only:
            self._tally.times.queue.observe(sequence.admitted_at - sequence.submitted_at)
            self._tally.times.prefill.observe(sequence.first_at - sequence.admitted_at)

    def _reached_limit(self, request: Request, length: int) -> Finish | None:
        full = length >= self._scheduler.limits.context_length
        complete = length - len(request.prompt) >= request.max_tokens
        return Finish.LENGTH if full or complete else None

    def end(self, sequence: Sequence, finish: Finish, output: Output, error: str | None = None) -> None:
        """Ends a sequence with its last output, and an ``error`` if the sequence failed."""
        sequence.finish = finish
        self._cache.leave(sequence)
        self._scheduler.remove(sequence)
        answer = self._roster.leave(sequence)
        counted = sequence.request.max_tokens and not sequence.request.prefill_only
        if finish in (Finish.STOP, Finish.LENGTH) and counted:
            self._estimate.ended(sequence)
            self._audit(sequence)
        if counted and sequence.first_at:
            self._tally.times.decode.observe(self._scheduler.now() - sequence.first_at)
        usage = None if finish is Finish.TIMEOUT and not sequence.admitted else sequence.usage()
        last = answer.last(output, finish, usage, error)
        self.outcome.outputs.append((sequence.request, last))
        if sequence.request.speculates:
            self.outcome.closed.append(sequence.number)
            self._guessing.close(sequence)

    def stop(self, sequence: Sequence, finish: Finish, why: str | None) -> None:
        """Ends a sequence without further tokens."""
        self.end(sequence, finish, self._roster.answers[sequence.number].output([], [], []), why)


def _path(work: Work, drawn: DrawnRows) -> AcceptedPath | None:
    """What the draws accept of a tree; None for a chunk of a prompt or of a text that is embedded."""
    if work.guesses is None or drawn.pooled is not None:
        return None
    guesses = work.guesses
    return walk(guesses.tokens, guesses.parents, drawn.tokens) if guesses.tokens else AcceptedPath([0], drawn.tokens)


def _drafters(sequence: Sequence, guesses: MergedTree, accepted: AcceptedPath, tokens: int) -> list[str]:
    """Counts a sequence's ``guesses`` as right or wrong; returns the drafter of each of the step's ``tokens``."""
    drafters = [*[guesses.drafters[row - 1] for row in accepted.rows[1:]], ""][:tokens]
    right = len(drafters) - drafters.count("")
    sequence.accepted += right
    sequence.rejected += len(guesses) - right
    sequence.note_verified(right, max(guesses.depths))
    sequence.note_predicted(drafters.count(PREDICTION), guesses.drafters.count(PREDICTION))
    return drafters


def _scores(request: Request, accepted: AcceptedPath, tokens: list[int], logits: Tensor) -> list[Score]:
    """The target's log-probabilities of ``tokens``, from its logits [rows, V]."""
    rows = accepted.rows[: len(tokens)]
    return score(logits[rows], tokens, request.parameters.logprobs or 0) if tokens else []


def _why_refused(sequence: Sequence) -> str:
    """Why no token may follow."""
    return (sequence.guide and sequence.guide.failure) or _NO_TOKEN
