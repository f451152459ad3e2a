"""The report of a load test: machine, figures, ratios; as a table, as JSON, and as a picture."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
from outrider.loadtest.summary import Summary
from rich.table import Table

VERSIONS = ("outrider", "torch", "grpcio", "nats-py", "uvicorn")


class Pass(msgspec.Struct, frozen=True):
    """One load in one mode; among a report's medians ``repeat`` is how many passes the figures sum up."""

    load: str
    mode: str
    repeat: int
    summary: Summary
    error: str = ""


class Report(msgspec.Struct, frozen=True):
    """A load test's outcome."""

    machine: dict[str, str]
    settings: dict[str, Any]
    passes: list[Pass]
    medians: list[Pass]

    @property
    def ratios(self) -> dict[str, float]:
        """Tokens a second with speculation on against off, for each load that ran both."""
        speed = {(each.load, each.mode): each.summary.tokens_per_s for each in self.medians}
        return {
            load: speed[load, "on"] / speed[load, "off"]
            for load in dict.fromkeys(each.load for each in self.medians)
            if (load, "on") in speed and (load, "off") in speed
        }

    @property
    def errors(self) -> list[str]:
        """Distinct errors of the requests that failed."""
        return list(dict.fromkeys(each.error for each in self.passes if each.error))

    def save(self, path: Path) -> None:
        """Writes the report as JSON."""
        content = msgspec.to_builtins(self) | {"ratios": self.ratios}
        path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


def machine() -> dict[str, str]:
    """What a figure means little without: processor, cores this process may use, and versions."""
    return {
        "cpu": _cpu_model(),
        "cores": str(len(os.sched_getaffinity(0))),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: version for name in VERSIONS if (version := _version(name))},
    }


def table(report: Report) -> Table:
    """The medians, one line a load and mode."""
    repeats = report.settings["repeats"]
    shown = Table(title=f"Median of {repeats} (latencies in ms; p50 unless it says p99)", title_justify="left")
    heads = ("load", "speculation", "tokens/s", "a request", "on/off", "tokens a step", "accepted")
    for head in (*heads, "TTFT", "p99", "ITL", "p99", "pause p99"):
        shown.add_column(head, justify="left" if head in heads[:2] else "right")
    for each in report.medians:
        ratio = report.ratios.get(each.load) if each.mode == "on" else None
        shown.add_row(each.load, each.mode, *_cells(each.summary, ratio))
    return shown


def _cells(summary: Summary, ratio: float | None) -> list[str]:
    return [
        f"{summary.tokens_per_s:.0f}",
        f"{summary.request_tokens_per_s:.0f}",
        f"{ratio:.2f}" if ratio else "",
        f"{summary.tokens_a_step:.2f}",
        f"{summary.accepted_share:.0%}" if summary.accepted_share == summary.accepted_share else "",
        f"{summary.ttft_ms:.0f}",
        f"{summary.ttft_p99_ms:.0f}",
        f"{summary.itl_ms:.2f}",
        f"{summary.itl_p99_ms:.2f}",
        f"{summary.pause_p99_ms:.0f}",
    ]


def _cpu_model() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
