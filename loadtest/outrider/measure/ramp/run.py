"""A ramp from plan to result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from outrider.measure.chats.supply import endless
from outrider.measure.load import client
from outrider.measure.load.client import Reply
from outrider.measure.load.prompts import unique
from outrider.measure.ramp import search
from outrider.measure.ramp.figures import Slo
from outrider.measure.ramp.level import Level, Run, Timing
from outrider.measure.ramp.result import FORMAT, Result
from outrider.measure.ramp.schedules import Arrival, Schedule
from outrider.measure.report.bench_report import machine
from outrider.mesh.access import Access

Request = tuple[dict[str, Any], str]
"""A body, and the path that it is posted to."""
FIRST_RATE = 0.25
"""Requests a second at which a ramp begins."""
_FIRST = 2


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes:
        rates: requests a second; without, rising ones until the mesh no longer keeps up.
        workload: kind of chat requests; ``code`` to continue ``prompts``. A trace has prompts of its own.
    """

    access: Access
    model: str
    prompts: list[str]
    schedule: Schedule
    rates: list[float]
    repeats: int
    timing: Timing
    slo: Slo
    workload: str | None
    max_tokens: int
    temperature: float
    seed: int


async def run(plan: Plan, settings: dict[str, Any], progress: Callable[[str], None]) -> Result:
    """Sends two requests, so that what is slow at first is over, then runs all levels."""
    requests = _requests(plan)
    progress("warming up")
    await asyncio.gather(*(_post(plan, *next(requests)) for _ in range(_FIRST)))

    async def level(rate: float, repeat: int) -> Level:
        progress(f"{rate:.3g} requests/s, repeat {repeat + 1} of {plan.repeats}")
        seed = plan.seed + repeat

        async def send(arrival: Arrival) -> Reply:
            return await _post(plan, *_of_trace(plan, arrival) if arrival.prompt is not None else next(requests))

        return await Run(rate, repeat, plan.timing, send).level(plan.schedule(rate, seed))

    levels = (
        await search.given(plan.rates, plan.repeats, level)
        if plan.rates
        else await search.rising(FIRST_RATE, plan.repeats, level)
    )
    return Result(FORMAT, machine(), {"model": plan.model, **settings}, plan.slo, levels)


def _requests(plan: Plan) -> Iterator[Request]:
    """Requests without end; each prompt is sent once."""
    if plan.workload is not None:
        for chat in endless(plan.workload, plan.seed, plan.max_tokens, plan.temperature):
            yield chat.body({}), client.CHATS
    for number, prompt in enumerate(unique(plan.prompts, str(plan.seed))):
        body = {"prompt": prompt, "max_tokens": plan.max_tokens, "seed": plan.seed + number, "ignore_eos": True}
        yield body | {"temperature": plan.temperature}, client.COMPLETIONS


def _of_trace(plan: Plan, arrival: Arrival) -> Request:
    body = {"prompt": arrival.prompt, "max_tokens": arrival.max_tokens, "temperature": plan.temperature}
    return body | {"ignore_eos": True}, client.COMPLETIONS


async def _post(plan: Plan, body: dict[str, Any], path: str) -> Reply:
    return await client.complete(plan.access, {"model": plan.model, **body}, path)
