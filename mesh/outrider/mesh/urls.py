"""URLs as logs and messages may show them."""

from __future__ import annotations

from urllib.parse import urlsplit


def without_passwords(text: str) -> str:
    """``text``, a URL or several with commas, with each password masked; other text as it is."""
    return ",".join(map(_masked, text.split(",")))


def _masked(url: str) -> str:
    if "://" not in url or (password := urlsplit(url).password) is None:
        return url
    return url.replace(f":{password}@", ":********@")
