"""Counts tasks, subscriptions, files, pages, records and memory of the processes of a mesh, and finds leaks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from outrider.loadtest.meshes.local_mesh import LocalMesh
from outrider.loadtest.report.bars import Bar
from outrider.mesh.access import login_at
from outrider.mesh.bus import Bus

KINDS = ("gateway", "verifier", "proposer", "tokenizer")
_METRICS = {"tasks": "outrider_tasks", "subscriptions": "outrider_bus_subscriptions"}
_RECORDS = "outrider-requests"
_FREE = "verifier free pages"
_SMALL = 4 << 20
"""Bytes by which every process may grow."""

Counts = dict[str, float]
"""Counts by name."""


def count(mesh: LocalMesh) -> Counts:
    """Present counts of all processes of each kind."""
    counts: Counts = {}
    for kind in KINDS:
        for what, metric in _METRICS.items():
            counts[f"{kind} {what}"] = mesh.metric(kind, metric) or 0.0
        counts[f"{kind} open files"] = sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in mesh.pids(kind))
    counts["gateway streams"] = mesh.metric("gateway", "outrider_gateway_streams") or 0.0
    counts[_FREE] = mesh.metric("verifier", "outrider_verifier_free_pages") or 0.0
    counts["records in the ledger"] = asyncio.run(_records(mesh.nats_url))
    return counts


def highest(one: Counts, other: Counts) -> Counts:
    """The higher of each count, and the fewest free pages."""
    names = one.keys() | other.keys()
    return {
        name: (min if name == _FREE else max)(counts[name] for counts in (one, other) if name in counts)
        for name in names
    }


def growth(before: Counts, after: Counts) -> Counts:
    """Growth of each count from ``before`` to ``after``; only counts that grew."""
    grown = {name: (before[name] - after[name]) * (1 if name == _FREE else -1) for name in before}
    return {name: amount for name, amount in grown.items() if amount > 0}


def memory(mesh: LocalMesh) -> dict[str, int]:
    """Resident bytes of each process, NATS included."""
    return {f"{kind} {pid}": _resident(pid) for kind in (*KINDS, "nats") for pid in mesh.pids(kind)}


def table(before: Counts, at_most: Counts, after: Counts) -> str:
    """A table with one line for each count."""
    lines = [f"{'held':28}{'before':>10}{'at most':>10}{'after':>10}"]
    for name in sorted(before):
        lines.append(f"{name:28}{before[name]:10.0f}{at_most.get(name, 0):10.0f}{after[name]:10.0f}")
    return "\n".join(lines)


def memory_table(samples: Sequence[Mapping[str, int]]) -> str:
    """One line for each process: its MiB at every sample."""
    names = sorted({name for sample in samples for name in sample})
    return "\n".join(
        f"{name:20} MiB:" + "".join(f" {sample.get(name, 0) / (1 << 20):.0f}" for sample in samples) for name in names
    )


def judge(before: Counts, after: Counts, samples: Sequence[Mapping[str, int]], slack: float) -> list[Bar]:
    """Bars: no count grew, and no process grew by more than ``slack`` in the second half of the time."""
    grown_counts = growth(before, after)
    judged = [Bar(f"{name}: no more than before", 0.0 - grown_counts.get(name, 0.0), 0) for name in sorted(before)]
    middle, last = samples[len(samples) // 2], samples[-1]
    for name in sorted(middle):
        spare = middle[name] * (1 + slack) + _SMALL - last.get(name, 0)
        judged.append(Bar(f"{name}: MiB to spare of what its memory may grow by", spare / (1 << 20), 0))
    return judged


async def _records(nats_url: str) -> float:
    bus = Bus()
    await bus.connect(nats_url, "soak", 10, *login_at(nats_url, "gateway"))
    try:
        return float((await bus.jetstream(5.0).stream_info(_RECORDS)).state.messages)
    finally:
        await bus.close()


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
