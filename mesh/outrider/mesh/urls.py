"""URLs of brokers: whether they can be used, and how logs and messages may show them."""

from __future__ import annotations

from urllib.parse import urlsplit

from outrider.mesh.errors import ConfigError

_SCHEMES = ("nats", "tls")


def require_broker(text: str) -> None:
    """Checks a broker's URL, or several with commas.

    Raises:
        ConfigError: a URL has another scheme than ``nats``, the default, and ``tls``, no host, or a port that is none.
    """
    for url in text.split(","):
        if not _is_broker(url):
            raise ConfigError(
                f"nats_url = {without_passwords(url)!r} is not the URL of a broker: write nats://HOST:PORT or "
                "tls://HOST:PORT, and several with commas"
            )


def _is_broker(url: str) -> bool:
    try:
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        return parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def without_passwords(text: str) -> str:
    """``text``, a URL or several with commas, with each password masked; other text as it is."""
    return ",".join(map(_masked, text.split(",")))


def _masked(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    credentials, at, host = rest.rpartition("@")
    user, colon, _ = credentials.partition(":")
    return f"{scheme}{separator}{user}:********{at}{host}" if colon else url
