"""All cases, and the table of them in `docs/hostile-input.md`."""

from __future__ import annotations

from tests.gateway.hostile import bodies, calls, grammars, messages, wire
from tests.gateway.hostile.case import Case

CASES: dict[str, Case] = {case.name: case for room in (bodies, grammars, wire, calls, messages) for case in room.CASES}
"""All cases by name."""


def markdown() -> str:
    """The table of cases."""
    lines = ["| case | door | input | answer |", "|---|---|---|---|"]
    for case in CASES.values():
        answer = " or ".join(case.answers) + (f": … {case.says} …" if case.says else "")
        lines.append(f"| `{case.name}` | {case.door} | {case.what} | {answer} |")
    return "\n".join(lines) + "\n"
