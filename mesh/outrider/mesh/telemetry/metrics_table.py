"""Writes the tables of all metrics into a page of the documentation: `python -m outrider.mesh.telemetry.metrics_table`.

The page keeps what is above its heading `HEADING`.
"""

from __future__ import annotations

import importlib
import sys
from collections import defaultdict
from importlib.metadata import entry_points
from pathlib import Path

from outrider.mesh.telemetry.metrics import DESCRIBED, Described
from outrider.mesh.telemetry.vllm_names import ALIASES

HEADING = "## All metrics"
_SERVICES = {
    "gateway": "gateway",
    "tokenizer": "tokenizer",
    "proposer": "proposer",
    "verifier": "verifier",
    "spec": "verifier",
    "gpu": "verifier",
    "kvcache": "kvcache",
}
"""The service of a metric, by the first word of its name; all processes have the others."""
# A drafter's own thread runs in proposers only.
_OF_PROPOSERS = frozenset({"outrider_spec_hidden_drafting_seconds_total", "outrider_spec_proposed_tokens_total"})
_EVERY = "every process"
_ORDER = ("gateway", "verifier", "proposer", "kvcache", "tokenizer", _EVERY)


def by_service() -> dict[str, list[Described]]:
    """All metrics, those of each service by name; services of plugins that are installed included."""
    _import_services()
    found: defaultdict[str, list[Described]] = defaultdict(list)
    for metric in sorted(DESCRIBED):
        found[_service(metric.name)].append(metric)
    return found


def tables() -> str:
    """The tables, one for each service, and that of vLLM's names."""
    metrics = by_service()
    parts = [f"{HEADING}\n"]
    for service in _ORDER:
        rows = "\n".join(map(_row, metrics[service]))
        parts.append(f"### Of {service}\n\n| metric | type | meaning |\n|---|---|---|\n{rows}\n")
    aliases = "\n".join(f"| `vllm:{alias.name}` | `outrider_{alias.source}` |" for alias in ALIASES)
    parts.append(f"### vLLM's names\n\n| name, without `_total` | made of |\n|---|---|\n{aliases}\n")
    return "\n".join(parts)


def write(page: Path) -> None:
    """Replaces the tables of ``page``."""
    page.write_text(page.read_text().partition(HEADING)[0] + tables())


def _import_services() -> None:
    importlib.import_module("outrider.mesh.process")
    for kind in entry_points(group="outrider.settings"):
        importlib.import_module(f"outrider.{kind.name}.service")


def _service(name: str) -> str:
    if name in _OF_PROPOSERS:
        return "proposer"
    return _SERVICES.get(name.removeprefix("outrider_").partition("_")[0], _EVERY)


def _row(metric: Described) -> str:
    labels = f"{{{','.join(metric.labels)}}}" if metric.labels else ""
    return f"| `{metric.name}{labels}` | {metric.kind} | {metric.meaning} |"


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/metrics.md"))
