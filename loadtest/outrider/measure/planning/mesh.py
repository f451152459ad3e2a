"""A simulated mesh: gateways, tokenizers, a router and verifiers, in simpy. A scenario and its seed fix everything."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from outrider.measure.planning.balancer import Balancer
from outrider.measure.planning.outcome import Outcome, times, tokens_within
from outrider.measure.planning.profile import Cpu
from outrider.measure.planning.scenario import Scenario
from outrider.measure.planning.verifier import Job, Verifier
from simpy import Environment, Event, Timeout

RETRY_S = 1.0
"""Seconds after which a moved request asks again if no verifier is there or has room."""


class Processor:
    """A process of a service: one core, first come, first served."""

    def __init__(self) -> None:
        self.free_at = self.busy_s = 0.0

    def work(self, now: float, seconds: float) -> float:
        """Adds work at ``now``; returns when it is done."""
        self.free_at = max(self.free_at, now) + seconds
        self.busy_s += seconds
        return self.free_at


class Mesh:
    """Runs one scenario once."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.env = scenario, Environment()
        self._draw = random.Random(f"mesh {scenario.seed}")
        self._gateways = [Processor() for _ in range(scenario.gateways)]
        self._tokenizers = [Processor() for _ in range(scenario.tokenizers)]
        self._gateway_cpu = scenario.cpu.get("gateway", Cpu())
        self._tokenizer_cpu = scenario.cpu.get("tokenizer", Cpu())
        self._balancer = Balancer(self._draw)
        self._live: list[Verifier] = []
        self._starting = 0
        self._busy_s, self._replica_s, self._changed_at = 0.0, 0.0, 0.0
        self.jobs: list[Job] = []
        self._refused: set[int] = set()
        self._preempted = self._finished = self._open = 0
        for _ in range(scenario.verifiers):
            self._add()

    def run(self) -> Outcome:
        """Runs until all requests of the measured time have ended, or the patience is over."""
        scenario, env = self.scenario, self.env
        self._until = scenario.warm_up_s + scenario.seconds
        env.process(self._arrive())
        for kill in scenario.kills:
            self._after(kill.at_s, partial(self._kill, kill.count, kill.replaced))
        if scenario.autoscale:
            env.process(self._scale())
        env.run(until=self._until)
        ended = sum(scenario.warm_up_s <= job.end for job in self.jobs)
        while self._open and env.peek() <= self._until + scenario.patience_s:
            env.step()
        return self._outcome(ended)

    def _arrive(self) -> Generator[Event, Any, None]:
        scenario, env = self.scenario, self.env
        for number, (at, prompt, answer) in enumerate(scenario.load.arrivals(random.Random(scenario.seed))):
            yield env.timeout(at - env.now)
            job = Job(number, at, prompt, answer)
            self.jobs.append(job)
            self._open += self._is_measured(job)
            self._enter(job)

    def _is_measured(self, job: Job) -> bool:
        return self.scenario.warm_up_s <= job.due < self._until

    def _enter(self, job: Job) -> None:
        """A random gateway and a random tokenizer read the request, which then goes to a verifier."""
        job.gateway = self._draw.randrange(len(self._gateways))
        read = self._gateways[job.gateway].work(self.env.now, self._gateway_cpu.request_s)
        encoded = self._draw.choice(self._tokenizers).work(read, self._tokenizer_cpu.request_s)
        self._after(encoded + self.scenario.overhead_s - self.env.now, partial(self._route, job))

    def _route(self, job: Job) -> None:
        verifier = self._balancer.least()
        if verifier is not None and not verifier.is_full:
            verifier.submit(job)
            self._balancer.update(verifier)
        elif job.moves:
            self._after(RETRY_S, partial(self._route, job))
        else:
            self._refused.add(job.number)
            self._open -= self._is_measured(job)

    def _ended(self, verifier: Verifier, job: Job) -> None:
        self._finished += 1
        self._open -= self._is_measured(job)
        self._gateways[job.gateway].work(self.env.now, self._gateway_cpu.token_s * job.tokens)
        self._draw.choice(self._tokenizers).work(self.env.now, self._tokenizer_cpu.token_s * job.tokens)
        self._balancer.update(verifier)
        if verifier.draining and not verifier.load:
            self._retire(verifier)

    def _add(self) -> None:
        self._count_time()
        verifier = Verifier(self.env, self.scenario.costs, self.scenario.limits, self._ended)
        self._live.append(verifier)
        self._balancer.update(verifier)

    def _retire(self, verifier: Verifier) -> None:
        self._count_time()
        self._live.remove(verifier)
        self._busy_s += verifier.busy_s
        self._preempted += verifier.preempted

    def _count_time(self) -> None:
        self._replica_s += len(self._live) * (self.env.now - self._changed_at)
        self._changed_at = self.env.now

    def _kill(self, count: int, replaced: bool) -> None:
        for verifier in self._draw.sample(self._live, min(count, len(self._live))):
            jobs = verifier.kill()
            self._retire(verifier)
            self._balancer.update(verifier)
            for job in jobs:
                job.moves += 1
                self._after(self.scenario.notice_s, partial(self._route, job))
            if replaced:
                self._start()

    def _start(self) -> None:
        self._starting += 1

        def ready() -> None:
            self._starting -= 1
            self._add()

        self._after(self.scenario.ready_s, ready)

    def _scale(self) -> Generator[Event, Any, None]:
        autoscale = self.scenario.autoscale
        assert autoscale is not None
        while True:
            yield self.env.timeout(autoscale.every_s)
            wanted = math.ceil(sum(verifier.load for verifier in self._live) / autoscale.load)
            wanted = min(max(wanted, autoscale.least), autoscale.most)
            active = [verifier for verifier in self._live if not verifier.draining]
            for _ in range(wanted - len(active) - self._starting):
                self._start()
            for verifier in heapq.nsmallest(len(active) - wanted, active, key=lambda verifier: verifier.load):
                self._drain(verifier)

    def _drain(self, verifier: Verifier) -> None:
        verifier.draining = True
        self._balancer.update(verifier)
        if not verifier.load:
            self._retire(verifier)

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        timeout: Any = Timeout(self.env, max(seconds, 0.0))
        timeout.callbacks.append(lambda _: act())

    def _outcome(self, ended: int) -> Outcome:
        verifiers = len(self._live)
        for verifier in list(self._live):
            self._retire(verifier)
        measured = [job for job in self.jobs if self._is_measured(job)]
        first_s, whole_s, token_s = times(measured)
        return Outcome(
            seconds=self.scenario.seconds,
            ended=ended,
            tokens_per_s=tokens_within(self.jobs, self.scenario.warm_up_s, self._until) / self.scenario.seconds,
            first_s=first_s,
            whole_s=whole_s,
            token_s=token_s,
            refused=len(self._refused),
            arrived=len(self.jobs),
            finished=self._finished,
            unfinished=len(self.jobs) - self._finished - len(self._refused),
            moved=sum(job.moves for job in self.jobs),
            preempted=self._preempted,
            busy=self._shares(),
            verifiers=verifiers,
        )

    def _shares(self) -> dict[str, float]:
        now = max(self.env.now, 1e-9)
        return {
            "gateway": sum(each.busy_s for each in self._gateways) / now / len(self._gateways),
            "tokenizer": sum(each.busy_s for each in self._tokenizers) / now / len(self._tokenizers),
            "verifier": self._busy_s / max(self._replica_s, 1e-9),
        }


def simulate(scenario: Scenario) -> Outcome:
    """Runs ``scenario``."""
    return Mesh(scenario).run()
