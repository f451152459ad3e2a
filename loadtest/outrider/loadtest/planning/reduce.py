"""From loads with the metrics of services before and after them to the costs of a profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from outrider.loadtest.load.client import Reply
from outrider.loadtest.planning.profile import Cpu, ProfileError, PromptCost, StepPoint
from outrider.loadtest.planning.scrape import Snapshot

PARTS = ("schedule", "draft_wait", "forward", "sample", "commit")
"""Parts of a step that follow each other; ``publish`` runs beside the next step."""


@dataclass(frozen=True)
class Measured:
    """A closed load: its replies, its clients' mean seconds to the first token, and what services counted meanwhile."""

    name: str
    replies: Sequence[Reply]
    first_s: float
    counted: Snapshot

    def count(self, name: str) -> float:
        """What verifiers counted of a metric."""
        return self.counted.total("verifier", name)

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of steps by part."""
        return self.counted.parts("verifier", "verifier_step_part_seconds_total")

    @property
    def seconds(self) -> float:
        """Seconds of all steps of all verifiers."""
        return sum(self.parts.get(part, 0.0) for part in PARTS)

    @property
    def tokens(self) -> int:
        """Tokens of all answers."""
        return sum(reply.completion_tokens for reply in self.replies)


def prompt_cost(prompts: Measured, alone: Measured) -> PromptCost:
    """Seconds of a step and of a prompt's row that explain both the load of prompts and that of one plain stream.

    Raises:
        ProfileError: no step ran, as where metrics are those of another mesh.
    """
    loads = (prompts, alone)
    if not all(load.count("verifier_steps_total") for load in loads):
        raise ProfileError("the metrics counted no step: give the addresses of all verifiers of this mesh")
    counts = [[load.count("verifier_steps_total"), load.count("verifier_prefilled_tokens_total")] for load in loads]
    (step_s, row_s), *_ = np.linalg.lstsq(np.asarray(counts), np.asarray([load.seconds for load in loads]), rcond=None)
    return PromptCost(max(float(step_s), 0.0), max(float(row_s), 0.0))


def step_point(load: Measured, prompt: PromptCost) -> StepPoint:
    """The mean step of a load, without the rows of prompts."""
    steps, prefilled = load.count("verifier_steps_total"), load.count("verifier_prefilled_tokens_total")
    sequences, added = (load.count(f"spec_acceptance_length_{name}") for name in ("count", "sum"))
    rows = load.count("verifier_rows_total") - prefilled
    return StepPoint(
        running=sequences / steps,
        rows=max(rows / max(sequences, 1), 1.0),
        seconds=max(load.seconds - prefilled * prompt.row_s, 0.0) / steps,
        tokens=added / max(sequences, 1),
    )


def cpu(loads: Sequence[Measured]) -> dict[str, Cpu]:
    """CPU seconds for each request and token by kind, which explain all ``loads`` best; none is below 0."""
    return {
        kind: _cpu(loads, kind)
        for kind in ("gateway", "tokenizer", "verifier")
        if loads[0].counted.has(kind, "process_cpu_seconds_total")
    }


def _cpu(loads: Sequence[Measured], kind: str) -> Cpu:
    counts = np.asarray([[len(load.replies), load.tokens] for load in loads], float)
    seconds = np.asarray([load.counted.total(kind, "process_cpu_seconds_total") for load in loads])
    request_s, token_s = np.linalg.lstsq(counts, seconds, rcond=None)[0]
    if request_s < 0:
        request_s, token_s = 0.0, seconds.sum() / counts[:, 1].sum()
    if token_s < 0:
        request_s, token_s = seconds.sum() / counts[:, 0].sum(), 0.0
    return Cpu(float(request_s), float(token_s))


def overhead(alone: Measured, costs: dict[str, Cpu]) -> float:
    """Seconds of one stream's first token that neither verifiers nor the CPU time of the others explain."""
    sums = [alone.count(f"verifier_{part}_seconds_sum") for part in ("queue", "prefill")]
    at_verifiers = sum(sums) / max(alone.count("verifier_prefill_seconds_count"), 1)
    elsewhere = sum(costs.get(kind, Cpu()).request_s for kind in ("gateway", "tokenizer"))
    return max(alone.first_s - at_verifiers - elsewhere, 0.0)


def computed(loads: Sequence[Measured]) -> float:
    """Share of the prompts' tokens that verifiers computed."""
    prompts = sum(reply.prompt_tokens for load in loads for reply in load.replies)
    cached = sum(reply.cached_tokens for load in loads for reply in load.replies)
    return 1 - cached / max(prompts, 1)
