"""Where a request comes from, through proxies that are trusted to say so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address

from outrider.gateway.admission.caller import Address

Network = IPv4Network | IPv6Network


def client_address(peer: str, forwarded: Iterable[str], trusted: Sequence[Network]) -> Address | None:
    """The nearest address that is none of ours; None where that is no address.

    ``peer`` is who has connected, and ``forwarded`` the values of ``X-Forwarded-For``, to which each proxy appends whom
    it heard: they are believed as far as only ``trusted`` proxies stand between.
    """
    address = _address(peer)
    said = [part for value in forwarded for part in value.split(",")]
    while said and address is not None and any(address in network for network in trusted):
        address = _address(said.pop())
    return address


def _address(text: str) -> Address | None:
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
