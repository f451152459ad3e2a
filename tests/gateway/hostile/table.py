"""All cases, and the table of them in `docs/hostile-input.md`."""

from __future__ import annotations

from collections import defaultdict

from tests.gateway.hostile import bodies, calls, grammars, messages, wire
from tests.gateway.hostile.case import Case

CASES: dict[str, Case] = {case.name: case for room in (bodies, grammars, wire, calls, messages) for case in room.CASES}
"""All cases by name."""


def markdown() -> str:
    """The table of cases, in a row those of one API that have one answer."""
    rows: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for case in CASES.values():
        rows[case.api, " or ".join(case.answers)].append(f"`{case.name}`")
    lines = [f"| {api} | {answer} | {', '.join(names)} |" for (api, answer), names in rows.items()]
    return "\n".join(["| API | answer | cases |", "|---|---|---|", *lines]) + "\n"
