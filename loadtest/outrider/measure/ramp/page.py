"""The report as one HTML page, with its plots inside."""

from __future__ import annotations

import io
from collections.abc import Sequence
from html import escape
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.measure.ramp.figures import NAMES, Figure
from outrider.measure.ramp.result import Result, summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

PLOTS: dict[str, dict[str, str]] = {
    "Answers: requests a second": {"ended_per_s": "ended", "goodput_per_s": "in time"},
    "Tokens a second": {"tokens_per_s": "tokens"},
    "Time to the first token (TTFT), s": {"first_p50_s": "50 %", "first_p95_s": "95 %", "first_p99_s": "99 %"},
    "Time for each further token (TPOT), s": {"token_p50_s": "50 %", "token_p95_s": "95 %"},
}
_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:72em;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px}
td,th{padding:.25em .7em;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}
svg{width:100%;height:auto}.wide{overflow-x:auto}dt{font-weight:600;float:left;clear:left;width:9em}dd{margin-left:9em}"""


def save(result: Result, path: Path) -> bool:
    """Writes the page; without matplotlib the page has no plots, and the result is False."""
    found, drawn = result.figures, util.find_spec("matplotlib") is not None
    plots = f"{_curves(found)}<h2>In the course of each rate</h2>{_courses(result)}" if drawn else ""
    sentences = "".join(f"<p>{escape(line)}</p>" for line in summary(result, found))
    facts = {**result.machine, **{name: str(value) for name, value in result.settings.items()}}
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    path.write_text(
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Outrider under load</title><style>{_STYLE}</style><h1>Outrider under load</h1>{sentences}"
        f"{plots}<h2>Figures, with 95 % intervals</h2><div class=wide>{_table(found)}</div>"
        f"<h2>Measured with</h2><dl>{listed}</dl></html>\n"
    )
    return drawn


def _curves(found: dict[float, dict[str, Figure]]) -> str:
    """How the figures degrade as the rate rises."""
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=(12, 7), layout="constrained")
    for axes, (title, lines) in zip(drawing.subplots(2, 2).ravel(), PLOTS.items(), strict=True):
        for name, label in lines.items():
            _curve(axes, found, name, label)
        if title.startswith("Answers"):
            axes.plot(list(found), list(found), "--", color="#999", label="offered", linewidth=1)
        axes.set(title=title, xlabel="offered requests/s", ylim=(0, None))
        axes.legend(fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    return _svg(drawing)


def _curve(axes: Axes, found: dict[float, dict[str, Figure]], name: str, label: str) -> None:
    figures = [row[name] for row in found.values()]
    axes.plot(list(found), [figure.value for figure in figures], "o-", label=label, markersize=4)
    axes.fill_between(list(found), [f.low for f in figures], [f.high for f in figures], alpha=0.2)


def _courses(result: Result) -> str:
    """Tokens in each second, and times to first tokens by the time at which requests were due."""
    from matplotlib.figure import Figure as Drawing

    rates = result.rates
    drawing = Drawing(figsize=(12, 1 + 1.8 * len(rates)), layout="constrained")
    rows = drawing.subplots(len(rates), 2, squeeze=False)
    for (left, right), (rate, levels) in zip(rows, rates.items(), strict=True):
        for level in levels:
            left.plot(range(len(level.tokens)), level.tokens, linewidth=1)
            answered = [(request.due_s, request.first_s) for request in level.requests if request.first_s is not None]
            right.plot([due for due, _ in answered], [first for _, first in answered], ".", markersize=3)
        left.set(ylabel=f"{rate:.3g}/s: tokens/s", ylim=(0, None))
        right.set(ylabel="TTFT, s", ylim=(0, None))
    _label_bottom(rows[-1])
    return _svg(drawing)


def _label_bottom(row: Sequence[Axes]) -> None:
    for axes in row:
        axes.set_xlabel("seconds after the warm-up")


def _table(found: dict[float, dict[str, Figure]]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in NAMES)
    rows = (
        f"<tr><td>{rate:.3g}</td>" + "".join(f"<td>{row[name]}</td>" for name in NAMES.values()) + "</tr>"
        for rate, row in found.items()
    )
    return f"<table><tr><th>rate/s</th>{head}</tr>{''.join(rows)}</table>"


def _svg(drawing: Drawing) -> str:
    text = io.StringIO()
    drawing.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue().partition("<svg")[1] + text.getvalue().partition("<svg")[2]
