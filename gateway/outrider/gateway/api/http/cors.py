"""Access of web pages from other origins, if the operator allows it."""

from __future__ import annotations

from collections.abc import Collection

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

_EXPOSED = (
    "retry-after",
    "x-request-id",
    "request-id",
    "x-outrider-ignored",
    "x-outrider-request-id",
    "x-outrider-resumable",
    *(f"x-ratelimit-{what}-{kind}" for kind in ("requests", "tokens") for what in ("limit", "remaining", "reset")),
)
"""Headers of answers that such pages may read, besides those that every page may read."""


def with_cors(origins: Collection[str], app: ASGIApp) -> ASGIApp:
    """``app``, whose answers and errors web pages of ``origins`` may read; those pages may not send cookies.

    It wraps everything else, so that a browser's preflight request needs no key.
    """
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=("*",),
        expose_headers=_EXPOSED,
    )
