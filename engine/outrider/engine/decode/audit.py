"""Replays a share of the finished answers, to notice a token that is not the one of the target.

The recorded tokens are guesses behind the prompt, computed anew on pages of their own, with dice, penalties and masks
made anew: each row must draw the token that the answer has there.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace

from outrider.engine.decode.runner import Runner, RunTimes, Work
from outrider.engine.logs import get_logger
from outrider.engine.pages.page_table import OutOfPages
from outrider.engine.requests.sequence import Request, Sequence
from outrider.engine.scheduling.scheduler import Scheduler
from outrider.engine.speculation import MergedTree

ROWS = 16
"""Most rows of a replay between two steps: about as much as a step takes, so that no other request waits longer."""
_MOST_WAITING = 8
OUTCOMES = ("same", "different", "cancelled", "skipped", "failed")

_log = get_logger("audit")


class _Replay:
    """The replay of one answer: ``sequence`` grows by the recorded tokens."""

    def __init__(self, request: Request, answer: list[int], runner: Runner) -> None:
        anew = replace(request, emitted=[], trace=None)
        self.request, self.answer = request, answer
        self.sequence = Sequence.start(anew, 0, runner.dice(anew.sampling))
        self.sequence.echoed = len(anew.prompt)
        self.compared = 0

    @property
    def done(self) -> bool:
        """Whether all tokens have been compared."""
        return self.compared == len(self.answer)

    def next_work(self) -> Work:
        """The next rows: of the prompt but for its last token, then of the answer."""
        sequence, prompt = self.sequence, self.request.prompt
        if (left := len(prompt) - 1 - sequence.cached) > 0:
            return Work(sequence, prompt[sequence.cached : sequence.cached + min(left, ROWS)], None, False)
        chain = MergedTree()
        for depth, token in enumerate(self.answer[self.compared : self.compared + ROWS][:-1], start=1):
            chain.append(token, depth - 2, 1.0, depth, 1.0, "audit")
        return Work(sequence, [sequence.tokens[-1], *chain.tokens], chain, True)

    def take(self, drawn: list[int]) -> int | None:
        """Compares the tokens that the rows drew; the index of the first one that differs from the answer's."""
        recorded = self.answer[self.compared : self.compared + len(drawn)]
        for index, pair in enumerate(zip(recorded, drawn, strict=True), self.compared):
            if pair[0] != pair[1] and index >= len(self.request.emitted):
                return index
        self.sequence.tokens.extend(recorded)
        self.compared += len(recorded)
        return None


class Auditor:
    """Replays answers between steps, where no request waits. Called in the engine's thread.

    Tokens that another verifier drew before a fail-over are not compared: another processor may draw by other bits.
    Answers of slow grammars are skipped: steps would wait for their masks.

    Attributes:
        outcomes: number of answers by outcome, one of `OUTCOMES`.
    """

    def __init__(self, runner: Runner, scheduler: Scheduler, share: float) -> None:
        self._runner, self._scheduler, self._share = runner, scheduler, share
        self._due = 0.0
        self._waiting: deque[tuple[Request, list[int]]] = deque()
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0) if share else {})
        self._replay: _Replay | None = None

    @property
    def sequences(self) -> list[Sequence]:
        """The sequence with pages beside those of the scheduler, if there is one."""
        return [self._replay.sequence] if self._replay else []

    def offer(self, sequence: Sequence) -> None:
        """Notes an answer that has ended; takes as many as the share says."""
        request = sequence.request
        self._due += self._share
        if self._due < 1.0:
            return
        self._due -= 1.0
        if len(self._waiting) >= _MOST_WAITING:
            self.outcomes["cancelled"] += 1
        elif request.grammar is not None and request.grammar.slow:
            self.outcomes["skipped"] += 1
        else:
            self._waiting.append((request, sequence.tokens[len(request.prompt) :]))

    @property
    def busy(self) -> bool:
        """Whether there is more to replay."""
        return bool(self._waiting or self._replay)

    def run(self) -> None:
        """Replays some rows, not beside prompts; drops all replays where requests wait."""
        if self._scheduler.waiting:
            self._cancel()
        elif self.busy and not any(sequence.pending > 1 for sequence in self._scheduler.running):
            self._go_on()

    def forget(self, tenant: str) -> None:
        """Drops the answers of a tenant."""
        kept = [entry for entry in self._waiting if entry[0].tenant != tenant]
        self.outcomes["cancelled"] += len(self._waiting) - len(kept)
        self._waiting = deque(kept)
        if self._replay is not None and self._replay.request.tenant == tenant:
            self._end("cancelled")

    def _cancel(self) -> None:
        self.outcomes["cancelled"] += len(self._waiting)
        self._waiting.clear()
        if self._replay is not None:
            self._end("cancelled")

    def _go_on(self) -> None:
        replay = self._replay = self._replay or _Replay(*self._waiting.popleft(), self._runner)
        try:
            wrong = self._step(replay)
        except OutOfPages:
            self._end("cancelled")
        except Exception as error:
            _log.error("an answer could not be replayed", request=replay.request.id, exc_info=error)
            self._end("failed")
        else:
            if wrong is not None:
                _log.error("an answer differs from its replay", request=replay.request.id, position=wrong)
                self._end("different")
            elif replay.done:
                self._end("same")

    def _step(self, replay: _Replay) -> int | None:
        """Replays the next rows; the index of the first token that differs."""
        sequence, work = replay.sequence, replay.next_work()
        self._make_room(sequence, sequence.cached + len(work.tokens))
        times, self._runner.times = self._runner.times, RunTimes()
        try:
            drawn = self._runner.run([work])[0].tokens
        finally:
            self._runner.times = times
        sequence.cached += len(work.tokens)
        return replay.take(drawn) if work.draws else None

    def _make_room(self, sequence: Sequence, tokens: int) -> None:
        """Takes pages for ``tokens``, but none of the last ones, which running sequences need next."""
        pages = self._scheduler.pages
        while len(sequence.pages) * self._scheduler.limits.page_size < tokens:
            if pages.available <= len(self._scheduler.running):
                raise OutOfPages
            sequence.pages.append(pages.allocate(sequence.pages[-1] if sequence.pages else None, "audit"))

    def _end(self, outcome: str) -> None:
        assert self._replay is not None
        self._scheduler.pages.release(self._replay.sequence.pages)
        self.outcomes[outcome] += 1
        self._replay = None
