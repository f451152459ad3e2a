"""The rights of the broker's users as a Markdown table."""

from __future__ import annotations

from collections.abc import Iterable

from outrider.cli.bus.rights import USERS, client_rights
from outrider.mesh.bus.rights import minimal
from outrider.wire.subjects import CLIENT


def rights_table() -> str:
    """A row for each user: what it may publish, and what it may subscribe to."""
    rights = {**USERS, f"{CLIENT}-<tenant>": client_rights("<tenant>", "<key>")}
    rows = (f"| `{user}` | {_cell(each.publish)} | {_cell(each.subscribe)} |" for user, each in rights.items())
    return "\n".join(["| user | publishes | subscribes to |", "|---|---|---|", *rows])


def _cell(subjects: Iterable[str]) -> str:
    return ", ".join(f"`{subject}`" for subject in minimal(subjects)) or "nothing"
