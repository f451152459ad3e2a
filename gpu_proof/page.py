"""The findings as a page of Markdown that fits on a screenful of a terminal's history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpu_proof.stages import Ended

MOST = 12_000
"""Most characters of a page."""
_MOST_ROWS = 30
_MOST_FAILURE = 400


def page(machine: Mapping[str, str], ended: Sequence[Ended], lines: Sequence[Mapping[str, Any]]) -> str:
    """The page: the machine, the stages, what failed, then figures for as long as there is room."""
    parts = [_head(machine), _stages(ended, lines), *_failures(ended, lines), *_notes(lines), *_tables(lines)]
    text = ""
    for index, part in enumerate(parts):
        rest = f"\n{len(parts) - index} more sections are in results.jsonl.\n"
        if len(text) + len(part) + len(rest) > MOST:
            return text + rest
        text += part
    return text


def failed(ended: Sequence[Ended], lines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a check failed or a stage did not end by itself."""
    return any(each.how != "done" for each in ended) or any(not each["passed"] for each in _checks(lines))


def _head(machine: Mapping[str, str]) -> str:
    return "# GPU proof\n\n" + "\n".join(f"- {name}: {value}" for name, value in machine.items()) + "\n"


def _stages(ended: Iterable[Ended], lines: Sequence[Mapping[str, Any]]) -> str:
    rows: list[dict[str, Any]] = []
    for each in ended:
        checks = [line["passed"] for line in _checks(lines) if line["stage"] == each.stage.name]
        counts = f"{sum(checks)} of {len(checks)}"
        rows.append({"stage": each.stage.title, "passed": counts, "seconds": f"{each.seconds:.0f}", "end": each.how})
    return "\n" + _table(rows)


def _failures(ended: Iterable[Ended], lines: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    for each in ended:
        if each.tail:
            yield f"\n**{each.stage.name} {each.how}**\n\n```\n{each.tail[-3 * _MOST_FAILURE :]}\n```\n"
    for line in _checks(lines):
        if not line["passed"]:
            yield f"\n**failed: {line['stage']}: {line['name']}**\n\n```\n{line['detail'][-_MOST_FAILURE:]}\n```\n"


def _notes(lines: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for line in lines:
        if line["kind"] == "note":
            yield f"\n{line['stage']}: {line['text']}.\n"


def _tables(lines: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    tables: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        if line["kind"] == "figures":
            tables.setdefault(line["table"], []).append(line["row"])
    for title, rows in tables.items():
        left_out = f"\n{len(rows) - _MOST_ROWS} more rows are in results.jsonl.\n" if len(rows) > _MOST_ROWS else ""
        yield f"\n**{title}**\n\n{_table(rows[:_MOST_ROWS])}{left_out}"


def _checks(lines: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [line for line in lines if line["kind"] == "check"]


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    head = list(rows[0])
    cells = [head, ["---"] * len(head), *([_cell(row.get(name, "")) for name in head] for row in rows)]
    return "\n".join("| " + " | ".join(row) + " |" for row in cells) + "\n"


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
