"""Simulated figures beside those of a real mesh: the simulator replays the requests of the real open load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import uvloop
from outrider.loadtest.chats.supply import endless
from outrider.loadtest.load import client
from outrider.loadtest.load.client import Reply
from outrider.loadtest.meshes import local_mesh
from outrider.loadtest.planning import run as measurement
from outrider.loadtest.planning.costs import of_profile
from outrider.loadtest.planning.measure import KINDS, Wanted
from outrider.loadtest.planning.mesh import simulate
from outrider.loadtest.planning.profile import Profile
from outrider.loadtest.planning.scenario import Trace, of_measured
from outrider.loadtest.planning.tables import columns
from outrider.loadtest.ramp.figures import Slo, figures
from outrider.loadtest.ramp.level import Level, Run, Timing
from outrider.loadtest.ramp.schedules import Arrival, poisson
from outrider.mesh.access import Access, access_to
from rich.console import Console

THROUGHPUT_BAR, FIRST_BAR = 0.10, 0.20
"""Most relative error of tokens a second, and of the 95th percentile of the seconds to the first token."""
_CONCURRENCY = (1, 4, 16, 32)
_WARM_UP_S, _PATIENCE_S = 10.0, 120.0


@dataclass(frozen=True)
class Options:
    """What to compare; see the help of the command.

    ``shares`` are loads by what the costs allow. ``records`` is a folder that gets profiles and loads.
    """

    model: Path | None
    draft: Path | None
    shares: Sequence[float]
    threads: int
    workload: str
    max_tokens: int
    requests: int
    seconds: float
    seed: int
    records: Path | None


class Row(msgspec.Struct, frozen=True):
    """A load: figures of the simulation and of the mesh. Throughput is in tokens a second."""

    verifiers: int
    rate: float
    requests: int
    simulated_tokens_per_s: float
    measured_tokens_per_s: float
    simulated_first_p95_s: float
    measured_first_p95_s: float

    @property
    def holds(self) -> bool:
        """Whether both figures are within their bars."""
        pairs = (
            (self.simulated_tokens_per_s / self.measured_tokens_per_s, THROUGHPUT_BAR),
            (self.simulated_first_p95_s / self.measured_first_p95_s, FIRST_BAR),
        )
        return all(abs(ratio - 1) <= bar for ratio, bar in pairs)


def compare(options: Options, verifiers: int) -> list[Row]:
    """Profiles a mesh with ``verifiers``, which share this machine, and loads it beside the simulations."""
    settings = {"verifier.threads": str(options.threads)}
    with local_mesh.running(settings, verifiers, None, model=options.model, draft=options.draft) as mesh:
        access = access_to(mesh.url)
        profile = measurement.given(_wanted(options, access, mesh.metrics_urls(KINDS), verifiers))
        if options.records:
            profile.save(options.records / f"profile-{verifiers}.json")
        most = verifiers * _most(profile)
        return [_row(options, access, profile, verifiers, most * share) for share in options.shares]


def publish(rows: Sequence[Row], out: Path | None) -> int:
    """Prints all rows; returns 1 if one misses a bar."""
    shown = columns(
        "verifiers", "requests/s", "requests", "tokens/s simulated", "measured", "TTFT p95 simulated", "measured", ""
    )
    for row in rows:
        tokens = f"{row.simulated_tokens_per_s:.1f}", f"{row.measured_tokens_per_s:.1f}"
        first = f"{row.simulated_first_p95_s:.3f}", f"{row.measured_first_p95_s:.3f}"
        shown.add_row(
            str(row.verifiers),
            f"{row.rate:.2f}",
            str(row.requests),
            *tokens,
            *first,
            "within" if row.holds else "missed",
        )
    Console(width=120).print(shown)
    if out:
        out.write_bytes(msgspec.json.encode(rows) + b"\n")
    return 0 if all(row.holds for row in rows) else 1


def _wanted(options: Options, access: Access, urls: Sequence[str], verifiers: int) -> Wanted:
    return Wanted(
        access=access,
        model="",
        metrics=urls,
        settings={"threads": str(options.threads)},
        concurrency=[verifiers * clients for clients in _CONCURRENCY],
        workload=options.workload,
        requests=options.requests,
        max_tokens=options.max_tokens,
        seed=options.seed,
    )


def _most(profile: Profile) -> float:
    """Requests a second that a verifier takes at most by its measured costs, for the measured lengths."""
    costs, count = of_profile(profile), len(profile.lengths)
    prompt, answer = (sum(lengths) / count for lengths in zip(*profile.lengths, strict=True))
    numbers = range(1, round(max(point.running for point in profile.speculative)) + 1)
    return max(costs.capacity(running, prompt * profile.computed, answer) for running in numbers)


def _row(options: Options, access: Access, profile: Profile, verifiers: int, rate: float) -> Row:
    timing = Timing(_WARM_UP_S, options.seconds, _PATIENCE_S)
    print(f"loading: {rate:.3g} requests/s", flush=True)
    level, trace = uvloop.run(_load(options, access, profile.model, rate, timing))
    if options.records:
        name = f"load-{verifiers}-{rate:.3g}.json"
        (options.records / name).write_bytes(msgspec.json.encode({"level": level, "trace": trace.requests}))
    scenario = replace(
        of_measured(profile, trace),
        verifiers=verifiers,
        warm_up_s=timing.warm_up_s,
        seconds=timing.seconds,
        patience_s=timing.patience_s,
        seed=options.seed,
    )
    outcome, measured = simulate(scenario), figures([level], Slo(math.inf, math.inf))
    return Row(
        verifiers=verifiers,
        rate=rate,
        requests=len(level.requests),
        simulated_tokens_per_s=outcome.tokens_per_s,
        measured_tokens_per_s=measured["tokens_per_s"].value,
        simulated_first_p95_s=outcome.first(95),
        measured_first_p95_s=measured["first_p95_s"].value,
    )


async def _load(options: Options, access: Access, model: str, rate: float, timing: Timing) -> tuple[Level, Trace]:
    """Loads the mesh; returns what clients saw, and the requests that were answered as the simulator takes them."""
    answered: list[tuple[float, int, int]] = []
    chats = endless(options.workload, options.seed + 2, options.max_tokens)

    async def send(arrival: Arrival) -> Reply:
        reply = await client.complete(access, {"model": model, **next(chats).body({})}, client.CHATS)
        computed = max(reply.prompt_tokens - reply.cached_tokens, 1)
        answered.append((arrival.at, computed, reply.completion_tokens))
        return reply

    level = await Run(rate, 0, timing, send).level(poisson(rate, options.seed + 2))
    return level, Trace(sorted(answered))
