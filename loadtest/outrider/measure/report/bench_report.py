"""The report of `outrider bench`: machine, figures and ratios, as a table and as JSON."""

from __future__ import annotations

import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import msgspec
from outrider.measure.load.summary import Summary
from outrider.native.share import cores
from rich.table import Table

HEADS: dict[str, Literal["left", "right"]] = {
    "load": "left",
    "mode": "left",
    "tokens/s": "right",
    "on/off": "right",
    "tokens\na step": "right",
    "guesses\nright": "right",
    "TTFT\n50 %  99": "right",
    "ITL\n50 %": "right",
    "pause\n99 %": "right",
}
VERSIONS = ("outrider", "torch", "grpcio", "nats-py", "uvicorn")


class Pass(msgspec.Struct, frozen=True):
    """One load in one mode; in a report's medians, ``repeat`` is the number of passes."""

    load: str
    mode: str
    repeat: int
    summary: Summary
    error: str = ""


class Report(msgspec.Struct, frozen=True):
    """The result of a load test."""

    machine: dict[str, str]
    settings: dict[str, Any]
    passes: list[Pass]
    medians: list[Pass]

    @property
    def ratios(self) -> dict[str, float]:
        """Ratio of tokens a second, speculation on to off, of each load that ran both."""
        speed = {(median.load, median.mode): median.summary.tokens_per_s for median in self.medians}
        return {
            load: speed[load, "on"] / speed[load, "off"]
            for load in dict.fromkeys(median.load for median in self.medians)
            if (load, "on") in speed and (load, "off") in speed
        }

    @property
    def errors(self) -> list[str]:
        """Distinct errors of failed requests."""
        return list(dict.fromkeys(pass_.error for pass_ in self.passes if pass_.error))

    def save(self, path: Path) -> None:
        """Writes the report as JSON."""
        content = msgspec.to_builtins(self) | {"ratios": self.ratios}
        path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


def machine() -> dict[str, str]:
    """The context of all figures: processor, cores that this process may use, and versions."""
    return {
        "cpu": _cpu_model(),
        "cores": f"{cores()} cores",
        "system": f"{platform.system()} {platform.release()}",
        "python": f"python {platform.python_version()}",
        **{name: f"{name} {version}" for name in VERSIONS if (version := _version(name))},
    }


def headline(report: Report) -> str:
    """The machine and the load, in two lines."""
    settings = report.settings
    request = f"{settings['model']}, {settings['max_tokens']} tokens a request, temperature {settings['temperature']:g}"
    requests = ", ".join(f"{count} at {load}" for load, count in settings["requests"].items())
    return f"{', '.join(report.machine.values())}\n{request}; requests: {requests}; median of {settings['repeats']}"


def table(report: Report) -> Table:
    """The medians, one line for each load and mode. Latencies are percentiles in milliseconds."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head, justify in HEADS.items():
        shown.add_column(head, justify=justify, vertical="bottom", no_wrap=True)
    for median in report.medians:
        ratio = report.ratios.get(median.load) if median.mode == "on" else None
        shown.add_row(median.load, median.mode, *_cells(median.summary, ratio))
    return shown


def _cells(summary: Summary, ratio: float | None) -> list[str]:
    return [
        f"{summary.tokens_per_s:.0f}",
        f"{ratio:.2f}" if ratio else "",
        f"{summary.tokens_a_step:.2f}",
        f"{summary.accepted_share:.0%}" if summary.accepted_share == summary.accepted_share else "",
        f"{summary.ttft_ms:.0f} {summary.ttft_p99_ms:4.0f}",
        f"{summary.itl_ms:.1f}",
        f"{summary.pause_p99_ms:.0f}",
    ]


def _cpu_model() -> str:
    try:
        name = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        name = None
    return name[1] if name else platform.machine()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
