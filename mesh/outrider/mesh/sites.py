"""The part of an address by which a client is known: one client may have many IPv6 addresses."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

_SITE_BITS = 64
"""Bits of an IPv6 address that count: one customer usually has all addresses below them (RFC 6177)."""


def site_of(address: IPv4Address | IPv6Address) -> str:
    """The network of one address, or of an IPv6 address that of one site."""
    bits = _SITE_BITS if isinstance(address, IPv6Address) else address.max_prefixlen
    return str(ip_network((address, bits), strict=False))


def site_named(text: str) -> str:
    """The site of the address that ``text`` names; ``text`` itself where it names none."""
    try:
        return site_of(ip_address(text))
    except ValueError:
        return text
