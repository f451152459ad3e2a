"""A simulated verifier: continuous batching with measured costs, an event for each change and none for a token."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from typing import Any

from outrider.measure.planning.costs import StepCosts
from outrider.measure.planning.profile import Limits
from simpy import Environment, Event, Timeout


class Job:
    """A request, with times in seconds of the simulation; ``first`` and ``end`` are NaN before they are known.

    Attributes:
        prompt: tokens that are still to compute before the next token.
        answer: tokens that are still to generate.
        tokens: tokens of the whole answer.
        gateway: number of its gateway.
        moves: times that a verifier died under it.
    """

    __slots__ = ("answer", "due", "end", "first", "gateway", "moves", "number", "prompt", "since", "tokens")

    def __init__(self, number: int, due: float, prompt: int, answer: int) -> None:
        self.number, self.due, self.prompt, self.answer, self.tokens = number, due, float(prompt), float(answer), answer
        self.first = self.end = math.nan
        self.gateway = self.moves = 0
        self.since = 0.0


Heard = Callable[["Verifier", Job], None]


class Verifier:
    """A verifier that decodes, as `outrider.engine.scheduling` does for one tenant and one priority.

    All sequences that decode advance by the same tokens in a step: the mean of the profile for their number. So a
    sequence ends when the sum of all steps' tokens reaches a mark, and steps in which nothing else happens are one
    event. A request that comes in between ends this event at the next step.

    Args:
        env: the simulation.
        costs: the costs of steps.
        limits: slots, rows and pages.
        ended: called when a request has its last token.
    """

    def __init__(self, env: Environment, costs: StepCosts, limits: Limits, ended: Heard) -> None:
        self.env, self._costs, self._limits, self._ended = env, costs, limits, ended
        self.draining = self.dead = False
        self.busy_s, self.preempted = 0.0, 0
        self._waiting: deque[Job] = deque()
        self._prompts: list[Job] = []
        self._marks: list[tuple[float, int, Job]] = []
        self._sum, self._held = 0.0, 0.0
        self._turn, self._steps, self._began, self._step_s = 0, 0, 0.0, 0.0
        self._chunks: list[float] = []

    @property
    def load(self) -> int:
        """Requests, running and waiting."""
        return len(self._waiting) + len(self._prompts) + len(self._marks)

    @property
    def is_full(self) -> bool:
        """Whether the queue takes no more requests."""
        return len(self._waiting) >= self._limits.max_waiting

    def submit(self, job: Job) -> None:
        """Queues ``job``."""
        self._waiting.append(job)
        if not self._steps:
            self._start()
        elif self._steps > 1:
            self._cut()

    def kill(self) -> list[Job]:
        """Ends the verifier; returns its requests, which have to compute their prompts and answers so far again."""
        self.dead, self._turn = True, self._turn + 1
        decoding = [job for _, _, job in self._marks]
        for job in decoding:
            self._forget(job)
        jobs = sorted([*self._waiting, *self._prompts, *decoding], key=lambda job: job.number)
        self._waiting.clear()
        self._prompts.clear()
        self._marks.clear()
        return jobs

    def _start(self) -> None:
        """Begins the next step, or several that nothing changes; rests without work."""
        self._admit()
        self._make_room()
        running, self._steps, self._chunks = len(self._marks), 0, []
        if not running and not self._prompts:
            return
        self._step_s, self._steps = self._costs.seconds[running], 1
        if self._prompts:
            self._chunks = self._share(running)
            self._step_s += self._costs.prompt_s(running, sum(self._chunks))
        else:
            self._steps = self._free_run(running)
        self._began = self.env.now
        self._sleep(self._steps * self._step_s)

    def _share(self, running: int) -> list[float]:
        """Rows of each prompt, in order: half of the rows beside those that decode, and those without guesses."""
        limits = self._limits
        left: float = max((limits.max_rows - running) // 2, limits.max_rows - running * self._costs.rows[running])
        left = min(left, limits.prefill_rows)
        chunks = []
        for job in self._prompts:
            chunks.append(min(job.prompt - job.since, left))
            left -= chunks[-1]
        return chunks

    def _free_run(self, running: int) -> int:
        """Steps until the first sequence ends or pages run out."""
        tokens = self._costs.tokens[running]
        steps = math.ceil((self._marks[0][0] - self._sum) / tokens - 0.5 - 1e-9)
        return max(min(steps, int((self._room(running) - self._held) / (tokens * running))), 1)

    def _cut(self) -> None:
        """Ends a run of steps at the end of the present step."""
        steps = max(math.ceil((self.env.now - self._began) / self._step_s - 1e-9), 1)
        if steps < self._steps:
            self._steps = steps
            self._sleep(max(self._began + steps * self._step_s - self.env.now, 0.0))

    def _sleep(self, seconds: float) -> None:
        self._turn += 1
        timeout: Any = Timeout(self.env, seconds, self._turn)
        timeout.callbacks.append(self._wake)

    def _wake(self, event: Event) -> None:
        if event.value != self._turn:
            return
        running = len(self._marks)
        grown = self._steps * self._costs.tokens[running]
        self._sum += grown
        self._held += grown * running
        self.busy_s += self._steps * self._step_s
        self._end_steps(self._costs.tokens[running] / 2 + 1e-9)
        self._end_prompts()
        self._start()

    def _end_steps(self, slack: float) -> None:
        """Ends sequences whose mark is nearer to the present sum than to that of the next step."""
        while self._marks and self._marks[0][0] <= self._sum + slack:
            job = heapq.heappop(self._marks)[2]
            self._held -= job.prompt + self._sum - job.since
            self._finish(job)

    def _end_prompts(self) -> None:
        left = []
        for job, chunk in zip(self._prompts, self._chunks, strict=True):
            job.since += chunk
            if job.since < job.prompt:
                left.append(job)
                continue
            job.first = self.env.now if math.isnan(job.first) else job.first
            job.since, self._held = self._sum - 1, self._held + 1
            if job.answer <= 1:
                self._held -= job.prompt + 1
                self._finish(job)
            else:
                heapq.heappush(self._marks, (self._sum + job.answer - 1, job.number, job))
        self._prompts = left

    def _finish(self, job: Job) -> None:
        job.end = self.env.now
        self._ended(self, job)

    def _admit(self) -> None:
        while self._waiting and len(self._prompts) + len(self._marks) < self._limits.max_running:
            job, running = self._waiting[0], len(self._prompts) + len(self._marks)
            if running and self._held + job.prompt > self._room(running + 1) - running * self._limits.page_size:
                return
            self._waiting.popleft()
            job.since = 0.0
            self._held += job.prompt
            self._prompts.append(job)

    def _room(self, running: int) -> float:
        """Tokens that the pages hold: of each sequence's last page, half is empty on average."""
        return (self._limits.pages - running / 2) * self._limits.page_size

    def _make_room(self) -> None:
        """Preempts the last sequences while a step's tokens find no pages; one sequence alone always runs."""
        while len(self._marks) > 1 and self._held + len(self._marks) > self._room(len(self._marks)):
            last = max(self._marks, key=lambda mark: mark[1])
            self._marks.remove(last)
            heapq.heapify(self._marks)
            self._held -= last[2].prompt + self._sum - last[2].since
            self._forget(last[2])
            self._waiting.appendleft(last[2])
            self.preempted += 1

    def _forget(self, job: Job) -> None:
        """Turns the tokens that a decoding ``job`` has into a part of its prompt."""
        done = min(max(self._sum - job.since, 1.0), job.answer - 1)
        job.prompt += done
        job.answer -= done
