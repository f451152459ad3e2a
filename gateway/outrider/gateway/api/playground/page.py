"""The playground: a chat on one page, which loads no other files."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_ROOM = Path(__file__).parent
_SCRIPTS = ("vendor/marked", "vendor/purify", "requests", "tree", "answer", "exchange", "inspector", "chat")
"""In their order. Libraries in ``vendor`` are unchanged releases of marked and DOMPurify, from npm."""


class Playground:
    """``GET /``: a page that calls the HTTP API as any client does, with a key that the user enters."""

    def __init__(self) -> None:
        page = _page()
        self._page, self._headers = page, _headers(page)
        self.routes = [Route("/", self._get, methods=["GET"])]

    async def _get(self, request: Request) -> Response:
        if _names_etag(request.headers.get("if-none-match", ""), self._headers["etag"]):
            return Response(status_code=304, headers=self._headers)
        return Response(self._page, 200, self._headers, "text/html; charset=utf-8")


def _page() -> bytes:
    """The page with its styles and scripts inside."""
    style, html = ((_ROOM / f"page.{kind}").read_bytes() for kind in ("css", "html"))
    script = b"\n".join((_ROOM / f"{name}.js").read_bytes() for name in _SCRIPTS)
    html = html.replace(b"<style></style>", b"<style>%b</style>" % style)
    return html.replace(b"<script></script>", b"<script>%b</script>" % script)


def _headers(page: bytes) -> dict[str, str]:
    """Headers of the page: a browser checks each time whether the page has changed, and runs no other code."""
    return {
        "etag": f'"{hashlib.sha256(page).hexdigest()[:32]}"',
        "cache-control": "no-cache",
        "content-security-policy": "; ".join(
            (
                "default-src 'none'",
                f"script-src {_hash(page, 'script')}",
                f"style-src {_hash(page, 'style')}",
                "img-src data:",
                "connect-src 'self'",
                "base-uri 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
            )
        ),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
    }


def _hash(page: bytes, tag: str) -> str:
    """The hash of the page's only element ``tag`` in a Content-Security-Policy (CSP level 3, 2.3.1)."""
    (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>".encode(), page, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"


def _names_etag(header: str, etag: str) -> bool:
    """Whether an ``If-None-Match`` names ``etag`` (RFC 9110, 13.1.2)."""
    return any(each.strip().removeprefix("W/") in (etag, "*") for each in header.split(","))
