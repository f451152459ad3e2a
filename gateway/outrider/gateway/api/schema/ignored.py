"""Parameters of a request, and places of schemas, that have no effect, and the header that names them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from outrider.gateway.settings import GatewaySettings
from outrider.mesh.errors import InvalidRequest
from starlette.requests import Request

HEADER = "x-outrider-ignored"
_MOST, _LENGTH = 16, 160
_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-/\[\]~$]")


def collector(settings: GatewaySettings) -> list[str] | None:
    """An empty list for the ignored parameters of one request; None if the settings refuse such parameters."""
    return None if settings.parameters == "strict" else []


def note_part(name: str, neutral: str, ignored: list[str] | None) -> None:
    """Adds the ``name`` of a part of a parameter to ``ignored``; `InvalidRequest` if that is None.

    ``neutral`` is the value without effect, if there is one.
    """
    if ignored is None:
        otherwise = f", or set it to {neutral}" if neutral else ""
        raise InvalidRequest(f"{name} is not supported: leave it out{otherwise}", param=name)
    ignored.append(name)


def shown_names(names: Sequence[str] | None) -> tuple[str, ...]:
    """``names`` as answers show them: at most 16, then ``+N`` for the other ``N``.

    A name has at most 160 characters; a character other than ASCII letters, digits and ``_.-/[]~$`` is ``?``.
    """
    if not names:
        return ()
    rest = (f"+{len(names) - _MOST}",) if len(names) > _MOST else ()
    return tuple(_UNSAFE.sub("?", name[:_LENGTH]) for name in names[:_MOST]) + rest


def ignored_header(names: Sequence[str]) -> dict[str, str]:
    """The header that holds ``names``, as `shown_names` returns them; no header if there are none."""
    return {HEADER: ", ".join(names)} if names else {}


def announce(request: Request, names: Sequence[str] | None) -> tuple[str, ...]:
    """Adds the header with ``names`` to the answer or error of ``request``; returns `shown_names` of them."""
    safe = shown_names(names)
    request.state.headers.update(ignored_header(safe))
    return safe
