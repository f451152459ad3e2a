"""Measures a profile: closed loads of real chats, with the metrics of all services before and after each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
from outrider.measure.chats.chat_request import ChatRequest
from outrider.measure.chats.supply import ChatSupply
from outrider.measure.load import client
from outrider.measure.load.arrivals import Closed, Sample
from outrider.measure.load.client import Reply
from outrider.measure.planning import power, reduce
from outrider.measure.planning.profile import FORMAT, Limits, Profile, ProfileError
from outrider.measure.planning.reduce import Measured
from outrider.measure.planning.scrape import PROCESSES, Snapshot, scrape
from outrider.measure.report.bench_report import machine
from outrider.mesh import plugins
from outrider.mesh.access import Access
from outrider.mesh.config import load

Progress = Callable[[str], None]
KINDS = ("gateway", "tokenizer", "verifier")
"""Services whose metrics a profile needs."""
_PROMPTS = 4
"""Requests of the load of prompts, for each request of another load: their answers have one token."""
_SETTLE_S = 0.5
"""Longer than a verifier takes to bring its metrics up to date."""


@dataclass(frozen=True)
class Wanted:
    """What to measure.

    Attributes:
        access: the mesh.
        metrics: addresses of the metrics of its gateways, tokenizers and verifiers.
        settings: settings of its verifiers that differ from the defaults, by key.
        concurrency: clients of each load, ascending.
        requests: fewest requests of a load.
    """

    access: Access
    model: str
    metrics: Sequence[str]
    settings: dict[str, str]
    concurrency: Sequence[int] = (1, 4, 16, 32)
    workload: str = "mixed"
    requests: int = 16
    max_tokens: int = 128
    seed: int = 0


async def measure(wanted: Wanted, progress: Progress) -> Profile:
    """Runs all loads and returns the profile.

    Raises:
        ProfileError: metrics cannot be read, or a load has no answer.
    """
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=30) as http:
        return await _Measurement(wanted, http, progress).run()


class _Measurement:
    def __init__(self, wanted: Wanted, http: httpx.AsyncClient, progress: Progress) -> None:
        self._wanted, self._http, self._progress = wanted, http, progress
        self._supply = ChatSupply(wanted.seed, max_tokens=wanted.max_tokens)
        self._prompts = ChatSupply(wanted.seed + 1, max_tokens=1)
        self._meter = power.Meter()

    async def run(self) -> Profile:
        wanted = self._wanted
        await self._load("warm-up", self._supply, {}, 1, 2)
        least = wanted.concurrency[0]
        prompts = await self._load("prompts", self._prompts, "off", least, _PROMPTS * wanted.requests)
        plain, speculative = await self._loads("plain", "off"), await self._loads("speculative", {})
        return self._profile(prompts, plain, speculative, await self._snapshot())

    async def _loads(self, mode: str, speculation: Any) -> list[Measured]:
        """The largest load first: drafters that learn from answers know most of them when the smaller ones run."""
        loads = [
            await self._load(f"{mode}, {clients} clients", self._supply, speculation, clients, self._count(clients))
            for clients in reversed(self._wanted.concurrency)
        ]
        return loads[::-1]

    def _count(self, clients: int) -> int:
        return max(self._wanted.requests, 3 * clients)

    async def _load(self, name: str, supply: ChatSupply, speculation: Any, clients: int, requests: int) -> Measured:
        self._progress(f"measuring: {name}")
        before = await self._snapshot()
        chats = supply.take(self._wanted.workload, requests)
        running = asyncio.create_task(Closed(clients).run(self._sends(chats, speculation), requests))
        await self._meter.watch(running, self._snapshot)
        samples = running.result()
        await asyncio.sleep(_SETTLE_S)
        return _measured(name, samples, before, await self._snapshot())

    def _sends(self, chats: Sequence[ChatRequest], speculation: Any) -> Iterator[Callable[[], Awaitable[Reply]]]:
        for chat in chats:
            body = {"model": self._wanted.model, **chat.body(speculation)}
            yield partial(client.complete, self._wanted.access, body, client.CHATS)

    async def _snapshot(self) -> Snapshot:
        return await scrape(self._http, self._wanted.metrics)

    def _profile(self, prompts: Measured, plain: list[Measured], speculative: list[Measured], now: Snapshot) -> Profile:
        wanted, prompt = self._wanted, reduce.prompt_cost(prompts, plain[0])
        loads = [*plain, *speculative]
        costs = reduce.cpu([prompts, *loads])
        return Profile(
            format=FORMAT,
            machine=machine(),
            model=wanted.model,
            settings={
                "workload": wanted.workload,
                "concurrency": list(wanted.concurrency),
                "max_tokens": wanted.max_tokens,
                "seed": wanted.seed,
                **wanted.settings,
            },
            limits=limits(wanted.settings, now),
            plain=[reduce.step_point(load, prompt) for load in plain],
            speculative=[reduce.step_point(load, prompt) for load in speculative],
            prompt=prompt,
            cpu=costs,
            overhead_s=reduce.overhead(plain[0], costs),
            lengths=[(reply.prompt_tokens, reply.completion_tokens) for load in loads for reply in load.replies],
            computed=reduce.computed(loads),
            parts={load.name: load.parts for load in [prompts, *loads]},
            memory_bytes={kind: now.total(kind, "process_resident_memory_bytes") for kind in costs},
            watts=watts / max(now.total("verifier", PROCESSES), 1) if (watts := self._meter.watts) else None,
        )


def limits(settings: dict[str, str], idle: Snapshot) -> Limits:
    """The limits of one verifier: from its settings, and its pages from the metrics of an idle mesh."""
    verifier: Any = load(plugins.load("outrider.settings", "verifier"), "verifier", env=os.environ, flags=settings)
    engine = verifier.engine()
    names = ("max_running", "max_waiting", "prefill_rows", "max_rows", "page_size")
    verifiers = max(idle.total("verifier", PROCESSES), 1)
    free, used = (idle.total("verifier", f"verifier_{name}") for name in ("free_pages", "kv_utilization"))
    return Limits(pages=round(free / max(verifiers - used, 1e-9)), **{name: getattr(engine, name) for name in names})


def _measured(name: str, samples: Sequence[Sample], before: Snapshot, now: Snapshot) -> Measured:
    """Requests without an answer, as those over the model's context, are left out."""
    answered = [(sample.due, sample.reply) for sample in samples if sample.reply is not None]
    if not answered:
        error = samples[0].error if samples else "no request"
        raise ProfileError(f"no request of the load {name!r} was answered: {error}")
    first_s = sum(reply.arrivals[0] - due for due, reply in answered) / len(answered)
    return Measured(name, [reply for _, reply in answered], first_s, now - before, now)
