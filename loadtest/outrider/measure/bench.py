"""A load test from plan to report: modes of speculation side by side, pass after pass, in one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from outrider.measure.chats.supply import ChatSupply
from outrider.measure.load import client
from outrider.measure.load.arrivals import Closed, Load, Sample, Send
from outrider.measure.load.prompts import unique
from outrider.measure.load.summary import median, summarize
from outrider.measure.report.bench_report import Pass, Report, machine
from outrider.mesh.access import Access

WARM_UP_TOKENS = 16


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes:
        prompts: texts to complete, each after its own comment line.
        modes: "on" (the mesh's own choice), "off", or names of drafters joined by "+".
        workload: kind of chat requests that replace ``prompts``; each request is sent once.
    """

    access: Access
    model: str
    prompts: list[str]
    loads: list[Load]
    modes: list[str]
    requests: int | None = None
    repeats: int = 3
    max_tokens: int = 128
    temperature: float = 0.0
    seed: int = 0
    workload: str | None = None

    def requests_of(self, load: Load) -> int:
        """Requests of a pass: as given, or enough that its start and end weigh little."""
        return self.requests or max(8, 4 * (load.concurrency if isinstance(load, Closed) else 8))


async def run(plan: Plan, progress: Callable[[str], None]) -> Report:
    """Warms every mode up, then runs all passes; calls ``progress`` with the name of each.

    The modes take turns within a repeat, and reverse their order in the next, so that a machine that changes its speed
    during the run changes it for all modes alike.
    """
    supply = ChatSupply(plan.seed, max_tokens=plan.max_tokens)
    for mode in plan.modes:
        progress(f"warming up, speculation {mode}")
        await Closed(2).run(_requests(plan, supply, mode, "warm-up", 2, WARM_UP_TOKENS), 2)
    passes: list[Pass] = []
    for repeat in range(plan.repeats):
        for load in plan.loads:
            for mode in plan.modes if repeat % 2 == 0 else reversed(plan.modes):
                progress(f"repeat {repeat + 1}/{plan.repeats}, {load}, speculation {mode}")
                passes.append(await _run_pass(plan, supply, load, mode, repeat))
    return Report(machine=machine(), settings=_settings(plan), passes=passes, medians=_medians(plan, passes))


async def _run_pass(plan: Plan, supply: ChatSupply, load: Load, mode: str, repeat: int) -> Pass:
    count = plan.requests_of(load)
    samples = await load.run(_requests(plan, supply, mode, f"{load} {repeat}", count, plan.max_tokens), count)
    return Pass(str(load), mode, repeat, summarize(samples), _first_error(samples))


def _requests(plan: Plan, supply: ChatSupply, mode: str, name: str, count: int, max_tokens: int) -> Iterator[Send]:
    """At least ``count`` requests; no other pass sends one of them."""
    if plan.workload is not None:
        for chat in supply.take(plan.workload, count, plan.temperature):
            body = chat.body(_speculation(mode)) | {"max_tokens": min(chat.max_tokens, max_tokens)}
            yield partial(client.complete, plan.access, body, client.CHATS)
        return
    for number, prompt in enumerate(unique(plan.prompts, f"{plan.seed} {mode} {name}")):
        yield partial(client.complete, plan.access, _body(plan, mode, prompt, number, max_tokens))


def _body(plan: Plan, mode: str, prompt: str, number: int, max_tokens: int) -> dict[str, Any]:
    return {
        "model": plan.model,
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": plan.temperature,
        "seed": plan.seed + number,
        "ignore_eos": True,
        "speculation": _speculation(mode),
    }


def _speculation(mode: str) -> Any:
    """The field ``speculation`` of a request in ``mode``."""
    return {"on": {}, "off": "off"}.get(mode, {"drafters": mode.split("+")})


def _medians(plan: Plan, passes: list[Pass]) -> list[Pass]:
    return [
        Pass(
            str(load),
            mode,
            plan.repeats,
            median([pass_.summary for pass_ in repeats]),
            next((pass_.error for pass_ in repeats if pass_.error), ""),
        )
        for load in plan.loads
        for mode in plan.modes
        if (repeats := [pass_ for pass_ in passes if (pass_.load, pass_.mode) == (str(load), mode)])
    ]


def _first_error(samples: list[Sample]) -> str:
    return next((sample.error for sample in samples if sample.error), "")


def _settings(plan: Plan) -> dict[str, Any]:
    return {
        "model": plan.model,
        "requests": {str(load): plan.requests_of(load) for load in plan.loads},
        "repeats": plan.repeats,
        "max_tokens": plan.max_tokens,
        "temperature": plan.temperature,
        "seed": plan.seed,
        "workload": plan.workload,
    }
