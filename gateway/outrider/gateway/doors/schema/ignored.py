"""Parameters of a request that have no effect: which they are, and how their names are told."""

from __future__ import annotations

import re
from collections.abc import Sequence

from outrider.gateway.settings import GatewaySettings
from starlette.requests import Request

HEADER = "x-outrider-ignored"
_MOST, _LENGTH = 16, 64
_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-]")


def collector(settings: GatewaySettings) -> list[str] | None:
    """An empty list for the names of one request; None where the operator has parameters without effect refused."""
    return None if settings.parameters == "strict" else []


def told(names: Sequence[str] | None) -> tuple[str, ...]:
    """``names`` as clients are told them: at most 16, then ``+N`` for the other ``N``.

    A name has at most 64 characters; a character other than ASCII letters, digits, ``_``, ``.`` and ``-`` is ``?``.
    """
    if not names:
        return ()
    rest = (f"+{len(names) - _MOST}",) if len(names) > _MOST else ()
    return tuple(_UNSAFE.sub("?", name[:_LENGTH]) for name in names[:_MOST]) + rest


def header(names: Sequence[str]) -> dict[str, str]:
    """The header that tells ``names``, which are as `told` makes them; no header for no names."""
    return {HEADER: ", ".join(names)} if names else {}


def announce(request: Request, names: Sequence[str] | None) -> tuple[str, ...]:
    """Has the answer to ``request``, or its error, tell ``names`` in a header, and returns them as they are told."""
    safe = told(names)
    request.state.headers.update(header(safe))
    return safe
