"""From loads with the metrics of services before and after them to the costs of a profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from outrider.measure.load.client import Reply
from outrider.measure.planning.profile import Cpu, ProfileError, PromptCost, StepPoint
from outrider.measure.planning.scrape import PROCESSES, Snapshot

PARTS = ("schedule", "draft_wait", "forward", "sample", "commit")
"""Parts of a step that follow each other; ``publish`` runs beside the next step."""


@dataclass(frozen=True)
class Measured:
    """A closed load: its replies, its clients' mean seconds to the first token, what services counted, and the end."""

    name: str
    replies: Sequence[Reply]
    first_s: float
    counted: Snapshot
    now: Snapshot

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
    def curve(self) -> list[tuple[float, float]]:
        """Seconds of a step by rows, as verifiers measured them at their start; empty if they do not tell."""
        found = self.now.parts("verifier", "verifier_step_cost_seconds")
        verifiers = max(self.now.total("verifier", PROCESSES), 1)
        return sorted((float(rows), seconds / verifiers) for rows, seconds in found.items())

    @property
    def tokens(self) -> int:
        """Tokens of all answers."""
        return sum(reply.completion_tokens for reply in self.replies)


def prompt_cost(prompts: Measured, alone: Measured) -> PromptCost:
    """Seconds of a step and of prompts that explain both the load of prompts and that of one plain stream.

    The verifiers' own curve of steps by rows tells how the time of a prompt grows with its rows. It is stretched, since
    it is of rows that all draw a token. Verifiers that do not show a curve get the same time for each row.

    Raises:
        ProfileError: no step ran, as where metrics are those of another mesh.
    """
    loads = (prompts, alone)
    if not all(load.count("verifier_steps_total") for load in loads):
        raise ProfileError("the metrics counted no step: give the addresses of all verifiers of this mesh")
    own = PromptCost(0.0, 1.0, prompts.curve)
    counts = [[load.count("verifier_steps_total"), _prompts_s(load, own, 0.0)] for load in loads]
    found = np.linalg.lstsq(np.asarray(counts), np.asarray([load.seconds for load in loads]), rcond=None)[0]
    step_s, stretch = (max(float(value), 0.0) for value in found)
    row_s = stretch * counts[0][1] / max(prompts.count("verifier_prefilled_tokens_total"), 1)
    return PromptCost(step_s, row_s, [(rows, stretch * seconds) for rows, seconds in own.curve])


def _prompts_s(load: Measured, prompt: PromptCost, beside: float) -> float:
    """Seconds of a load's prompts, each in a step of its own with ``beside`` other rows."""
    requests = len(load.replies)
    return requests * prompt.seconds(beside, load.count("verifier_prefilled_tokens_total") / requests)


def step_point(load: Measured, prompt: PromptCost) -> StepPoint:
    """The mean step of a load, without the rows of prompts."""
    steps, prefilled = load.count("verifier_steps_total"), load.count("verifier_prefilled_tokens_total")
    sequences, added = (load.count(f"spec_acceptance_length_{name}") for name in ("count", "sum"))
    rows = load.count("verifier_rows_total") - prefilled
    return StepPoint(
        running=sequences / steps,
        rows=max(rows / max(sequences, 1), 1.0),
        seconds=max(load.seconds - _prompts_s(load, prompt, rows / steps), 0.0) / steps,
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
