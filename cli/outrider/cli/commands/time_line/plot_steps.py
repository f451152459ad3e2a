"""Draws the time line of one request as a picture and a table."""

from __future__ import annotations

from math import ceil
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from outrider.cli.commands.time_line.steps import Span, TargetStep, Trace
from rich.table import Table

STEPS_A_LINE = 12
MOST_LINES = 40
_TARGET, _WAITED, _PROMPT, _GUESSED = "#4c72b0", "#dd8452", "#8c8c8c", "#2a9d4e"
_PASS, _COMMIT, _TREE, _DEAD = "#c4a35a", "#4c72b0", "#a0522d", "#cc3333"
_STEP_Y, _PASS_Y, _HEIGHT = 1.0, 0.0, 0.28
_COLUMNS = ("step", "at ms", "ms", "rows", "tokens", "bought", "right", "ready", "trees", "late", "passes")
_LEGEND = (
    "ready: nodes/depth of a proposer's tree when the step began, and how many tokens ago it was made; trees, late, "
    "passes: the proposers' work during the step: trees that agreed, trees that came too late, rounds of drafting."
)


def save(trace: Trace, path: Path) -> None:
    """Writes a picture of the format of the path's suffix: target steps above, draft passes below.

    Raises:
        ValueError: the suffix is no format of pictures.
    """
    steps = sorted(step.span.ended - step.span.began for step in trace.steps)
    width = max(STEPS_A_LINE * steps[len(steps) // 2], trace.ended / MOST_LINES)
    lines = max(ceil(trace.ended / width), 1)
    figure = Figure(figsize=(16, 1.7 * lines + 0.6), layout="constrained")
    for number, axes in enumerate(figure.subplots(lines, squeeze=False)[:, 0]):
        _draw(axes, trace, Span(number * width, (number + 1) * width))
    axes.set_xlabel("ms since the first step")
    figure.suptitle(_caption(trace), fontsize=9)
    figure.savefig(path, dpi=110)


def table(trace: Trace) -> Table:
    """A table with one line for each step."""
    shown = Table(box=None, pad_edge=False, caption=_LEGEND, caption_justify="left")
    for name in _COLUMNS:
        shown.add_column(name, justify="left" if name in ("bought", "ready") else "right")
    for number, step in enumerate(trace.steps):
        shown.add_row(str(number), *_cells(trace, step))
    return shown


def _cells(trace: Trace, step: TargetStep) -> list[str]:
    span, own = step.span, step.own
    bought = " ".join(f"{count} {drafter}" for drafter, count in own.bought.items())
    offers = [offer for offer in trace.offers if span.began <= offer.at < span.ended]
    return [
        f"{span.began * 1e3:.0f}",
        f"{(span.ended - span.began) * 1e3:.0f}",
        str(step.rows),
        str(own.decided),
        "(prompt)" if step.prompt else bought,
        str(own.accepted) if bought else "",
        " ".join(f"{tree.nodes}/{tree.depth}@-{own.length - tree.length}" for tree in own.trees),
        str(sum(offer.kept for offer in offers)),
        str(sum(not offer.kept for offer in offers)),
        str(sum(span.began <= pass_.span.ended < span.ended for pass_ in trace.passes)),
    ]


def _draw(axes: Axes, trace: Trace, window: Span) -> None:
    for number, step in enumerate(trace.steps):
        if _inside(step.span, window):
            _step(axes, step, number)
    for pass_ in trace.passes:
        if _inside(pass_.span, window):
            text = "" if pass_.tree is None else f"{pass_.tree.nodes}/{pass_.tree.depth}"
            _bar(axes, pass_.span, _PASS_Y, _PASS, text)
    for flight in trace.flights:
        if flight.what != "opens" and _inside(flight.span, window):
            down = flight.what == "commits"
            ends = (_STEP_Y - _HEIGHT, _PASS_Y + _HEIGHT) if down else (_PASS_Y + _HEIGHT, _STEP_Y - _HEIGHT)
            arrow = {"arrowstyle": "->", "color": _COMMIT if down else _TREE, "lw": 0.8, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", (flight.span.ended * 1e3, ends[1]), (flight.span.began * 1e3, ends[0]), arrowprops=arrow)
    dead = [o.at * 1e3 for o in trace.offers if not o.kept and window.began <= o.at < window.ended]
    axes.plot(dead, [_STEP_Y - _HEIGHT] * len(dead), "x", color=_DEAD, markersize=6)
    axes.set_xlim(window.began * 1e3, window.ended * 1e3)
    axes.set_ylim(_PASS_Y - 0.4, _STEP_Y + 0.4)
    axes.set_yticks([_PASS_Y, _STEP_Y], ["draft", "target"], fontsize=8)
    axes.tick_params(axis="x", labelsize=7)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _step(axes: Axes, step: TargetStep, number: int) -> None:
    own, colour = step.own, _PROMPT if step.prompt else _GUESSED if step.own.accepted else _TARGET
    bought = sum(own.bought.values())
    text = f"{number}: +{own.decided}" + (f" of {bought}" if bought else "")
    _bar(axes, step.span, _STEP_Y, colour, text)
    if step.waited > 0:
        _bar(axes, Span(step.span.began, step.span.began + step.waited), _STEP_Y, _WAITED, "")


def _bar(axes: Axes, span: Span, y: float, colour: str, text: str) -> None:
    took = (span.ended - span.began) * 1e3
    axes.barh(y, took, 2 * _HEIGHT, left=span.began * 1e3, color=colour, edgecolor="white", linewidth=0.5)
    if text:
        axes.text(span.began * 1e3 + took / 2, y, text, ha="center", va="center", fontsize=6, clip_on=True)


def _inside(span: Span, window: Span) -> bool:
    return span.ended > window.began and span.began < window.ended


def _caption(trace: Trace) -> str:
    tokens, decoding = sum(step.own.decided for step in trace.steps), sum(not step.prompt for step in trace.steps)
    return (
        f"request {trace.request}: {tokens} tokens in {len(trace.steps)} steps, {decoding} without prompts\n"
        "target steps: number, tokens decided, of how many guesses bought (green: accepted guesses; grey: prompt) · "
        "draft passes: nodes/depth of the tree · arrows: commits down, trees up · x: a tree that came too late"
    )
