"""JSON Schemas in parameters: what of them is enforced, and the names of what is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
from outrider.gateway.schemas.document import MalformedSchema
from outrider.gateway.schemas.enforced import Enforced
from outrider.mesh.errors import InvalidRequest

MOST_BYTES = 256 << 10
"""Bytes of all schemas of a request: more would keep the other requests of a gateway waiting."""
_MOST_SHOWN = 400


def require_small(schemas: Iterable[object], param: str) -> None:
    """Raises `InvalidRequest` if ``schemas``, of the parameter ``param``, are larger in all than `MOST_BYTES`."""
    size = sum(len(msgspec.json.encode(schema)) for schema in schemas)
    if size > MOST_BYTES:
        raise InvalidRequest(f"the schemas of {param} have {size} bytes, and at most {MOST_BYTES} in all", param=param)


def enforce(read: Callable[[], Enforced], param: str, strict: bool | None, of: str = "") -> tuple[str, tuple[str, ...]]:
    """The schema of the parameter ``param`` for the compiler, and the names of the places that are not enforced.

    Raises `InvalidRequest` if ``read`` finds the schema malformed, or if ``strict`` and something is not enforced;
    ``of`` then says whose schema it is.
    """
    try:
        kept = read()
    except MalformedSchema as error:
        raise InvalidRequest(f"{_shown(param + error.pointer)}{of} {error.why}", param=param) from None
    names = tuple(param + pointer for pointer in kept.ignored)
    if names and strict:
        raise _refusal(f"{_shown(names[0])}{of}", "or leave strict out", param)
    return kept.schema, names


def note_unenforced(names: Sequence[str], ignored: list[str] | None) -> None:
    """Adds ``names`` of places that are not enforced to ``ignored``; `InvalidRequest` if that is None."""
    if names and ignored is None:
        raise _refusal(_shown(names[0]), "or say it otherwise", names[0].partition("/")[0])
    if ignored is not None:
        ignored.extend(names)


def _refusal(name: str, otherwise: str, param: str) -> InvalidRequest:
    return InvalidRequest(f"{name} cannot be enforced: leave it out, {otherwise}", param=param)


def _shown(name: str) -> str:
    return name if len(name) <= _MOST_SHOWN else f"{name[:_MOST_SHOWN]}..."
