"""Simulated figures beside those of a real mesh under the same open loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import uvloop
from outrider.loadtest.meshes import local_mesh
from outrider.loadtest.planning import run as measurement
from outrider.loadtest.planning.costs import of_profile
from outrider.loadtest.planning.measure import KINDS, Wanted
from outrider.loadtest.planning.mesh import simulate
from outrider.loadtest.planning.profile import Profile
from outrider.loadtest.planning.scenario import Load, of_measured, scaled
from outrider.loadtest.planning.tables import columns
from outrider.loadtest.ramp import run as ramp
from outrider.loadtest.ramp.figures import Slo, figures
from outrider.loadtest.ramp.level import Timing
from outrider.loadtest.ramp.result import Result
from outrider.loadtest.ramp.schedules import poisson
from outrider.mesh.access import Access, access_to
from rich.console import Console

THROUGHPUT_BAR, FIRST_BAR = 0.10, 0.20
"""Most relative error of tokens a second, and of the 95th percentile of the seconds to the first token."""
_CONCURRENCY = (1, 4, 16, 32)
_WARM_UP_S, _PATIENCE_S = 10.0, 120.0
_SLO = Slo(2.0, 0.2)


@dataclass(frozen=True)
class Options:
    """What to compare; see the help of the command. ``shares`` are loads by what the costs allow."""

    model: Path | None
    draft: Path | None
    shares: Sequence[float]
    threads: int
    workload: str
    max_tokens: int
    requests: int
    seconds: float
    seed: int


class Row(msgspec.Struct, frozen=True):
    """A load: figures of the simulation and of the mesh. Throughput is in tokens a second."""

    verifiers: int
    rate: float
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
        most = verifiers * _most(profile)
        rates = [most * share for share in options.shares]
        result = uvloop.run(ramp.run(_ramp(options, access, profile.model, rates), {}, print))
    return [_row(options, profile, verifiers, rate, result) for rate in rates]


def publish(rows: Sequence[Row], out: Path | None) -> int:
    """Prints all rows; returns 1 if one misses a bar."""
    shown = columns("verifiers", "requests/s", "tokens/s simulated", "measured", "TTFT p95 simulated", "measured", "")
    for row in rows:
        tokens = f"{row.simulated_tokens_per_s:.1f}", f"{row.measured_tokens_per_s:.1f}"
        first = f"{row.simulated_first_p95_s:.3f}", f"{row.measured_first_p95_s:.3f}"
        shown.add_row(str(row.verifiers), f"{row.rate:.2f}", *tokens, *first, "within" if row.holds else "missed")
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
    """Requests a second that a verifier takes at most by its costs, for the measured lengths."""
    costs, count = of_profile(profile), len(profile.lengths)
    prompt, answer = (sum(lengths) / count for lengths in zip(*profile.lengths, strict=True))
    numbers = range(1, len(costs.seconds))
    return max(costs.capacity(running, prompt * profile.computed, answer) for running in numbers)


def _ramp(options: Options, access: Access, model: str, rates: list[float]) -> ramp.Plan:
    return ramp.Plan(
        access=access,
        model=model,
        prompts=[],
        schedule=poisson,
        rates=rates,
        repeats=1,
        timing=Timing(_WARM_UP_S, options.seconds, _PATIENCE_S),
        slo=_SLO,
        workload=options.workload,
        max_tokens=options.max_tokens,
        temperature=0.0,
        seed=options.seed + 2,
    )


def _row(options: Options, profile: Profile, verifiers: int, rate: float, result: Result) -> Row:
    prompts, answers = zip(*profile.lengths, strict=True)
    count = len(profile.lengths)
    load = Load([(0.0, rate)], scaled(profile, sum(prompts) / count, sum(answers) / count))
    scenario = replace(
        of_measured(profile, load),
        verifiers=verifiers,
        warm_up_s=_WARM_UP_S,
        seconds=options.seconds,
        patience_s=_PATIENCE_S,
        seed=options.seed + 2,
    )
    outcome, measured = simulate(scenario), figures(result.rates[rate], _SLO)
    return Row(
        verifiers=verifiers,
        rate=rate,
        simulated_tokens_per_s=outcome.tokens_per_s,
        measured_tokens_per_s=measured["tokens_per_s"].value,
        simulated_first_p95_s=outcome.first(95),
        measured_first_p95_s=measured["first_p95_s"].value,
    )
