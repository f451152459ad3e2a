"""Pages of other origins in browsers, which may read answers only where the operator lets them."""

from __future__ import annotations

from collections.abc import Collection

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

_EXPOSED = (
    "retry-after",
    "x-request-id",
    "x-outrider-ignored",
    *(f"x-ratelimit-{what}-{kind}" for kind in ("requests", "tokens") for what in ("limit", "remaining", "reset")),
)
"""Headers of answers that such pages may read, besides those that every page may."""


def shared_with(origins: Collection[str], app: ASGIApp) -> ASGIApp:
    """``app``, whose answers and errors pages of ``origins`` may read; cookies are not among what they may send.

    It stands around all else, so that a browser that asks beforehand needs no key.
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
