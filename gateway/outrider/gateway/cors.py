"""Pages of other origins in browsers, which may read answers only where the operator lets them."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

ANY = "*"
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
        allow_headers=(ANY,),
        expose_headers=_EXPOSED,
    )


def require_origin(text: str) -> None:
    """`ValueError` unless ``text`` is ``*`` or an origin as browsers write it (RFC 6454, 6.2): no path, no slash."""
    parts = urlsplit(text)
    origin = f"{parts.scheme}://{parts.netloc}"
    if text != ANY and not (parts.scheme and parts.netloc and text == origin.lower() and "@" not in text):
        raise ValueError(f"{text!r} is no origin: write it as https://app.example.com, or http://localhost:3000, or *")
