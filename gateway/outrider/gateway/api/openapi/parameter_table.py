"""Writes what becomes of every parameter: `python -m outrider.gateway.api.openapi.parameter_table`.

The page of the documentation keeps what is above its heading `HEADING`.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from outrider.gateway.api.openapi.operations import OPERATIONS
from outrider.gateway.api.schema.parameters import ALIASES, UnsupportedParameters
from outrider.wire.bounds import hints_of

APIS = {
    "completions": "/v1/completions",
    "chats": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
HEADING = "## Honoured"


class Fate(NamedTuple):
    """What becomes of a parameter in some APIs: ``honoured``, ``ignored`` or ``refused``, and the reader's way out."""

    kind: str
    note: str = ""


def fates(api: str) -> dict[str, Fate]:
    """What becomes of each parameter that the API, one of `APIS`, knows; any other is ignored, and named."""
    body = OPERATIONS["POST", APIS[api]].body
    assert body is not None
    names, other = hints_of(body.kind), body.unsupported
    aliases = {alias: Fate("honoured", f"`{own}`") for alias, own in ALIASES.items() if own in names}
    refused = {name: Fate("refused", _note(name, other, [*names])) for name in other.altering}
    ignored = {name: Fate("ignored", _shown(values)) for name, values in other.idle.items()}
    return refused | ignored | aliases | dict.fromkeys(names, Fate("honoured"))


def _note(name: str, other: UnsupportedParameters, names: list[str]) -> str:
    instead = other.substitute(name, names)
    return _shown(other.altering[name]) + (
        f"; {instead if ' ' in instead else f'`{instead}`'} instead" if instead else ""
    )


def _shown(values: tuple[Any, ...]) -> str:
    return " or ".join(f"`{msgspec.json.encode(value).decode()}`" for value in values)


def rows(kind: str) -> Iterator[str]:
    """The rows of the parameters of one kind of fate: name, APIs and note."""
    apis: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for api in APIS:
        for name, fate in fates(api).items():
            if fate.kind == kind:
                apis[name, fate.note].append(api)
    for (name, note), where in sorted(apis.items()):
        yield f"| `{name}` | {'all' if len(where) == len(APIS) else ', '.join(where)} | {note} |".replace("|  |", "| |")


def tables() -> str:
    """The three tables."""
    parts = [
        _table(HEADING, "another name of", "honoured"),
        _table("## Refused", "without effect, so taken", "refused"),
        _table("## Named and ignored", "without being named", "ignored"),
    ]
    return "\n".join(parts)


def _table(heading: str, note: str, kind: str) -> str:
    return "\n".join([f"{heading}\n", f"| parameter | in | {note} |", "|---|---|---|", *rows(kind), ""])


def write(page: Path) -> None:
    """Replaces the tables of ``page``."""
    page.write_text(page.read_text().partition(HEADING)[0] + tables())


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/parameters.md"))
