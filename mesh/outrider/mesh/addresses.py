"""The address by which other processes reach this one."""

from __future__ import annotations

import atexit
import ipaddress
import re
import socket
from contextlib import ExitStack
from urllib.parse import urlsplit

from outrider.mesh.config import Settings
from outrider.mesh.errors import ConfigError, Unavailable

_WITH_PORT = re.compile(r"(\[[^\]]+\]|[^:\[\]]+):(\d+)")
_LOOPBACK = "127.0.0.1"
_held = ExitStack()
atexit.register(_held.close)


def advertised(settings: Settings, port: int) -> str:
    """``host:port`` to announce: the configured one, or for a wildcard the address of this host on the way to NATS.

    Raises:
        ConfigError: the configured port is out of range.
    """
    host = settings.advertise or settings.host
    if match := _WITH_PORT.fullmatch(host):
        if not 1 <= int(match[2]) <= 65535:
            raise ConfigError(f"advertise = {host!r}: a port is a number from 1 to 65535")
        return host
    if _is_wildcard(host):
        host = _address_towards(settings.nats_url)
    return join(host.strip("[]"), port)


def own_host(settings: Settings) -> str:
    """The address to listen on: ``host``, or if it is empty, this host's address on the way to NATS.

    That is 127.0.0.1 where the loopback device leads to all servers of NATS. Raises `OSError` without a way to any.
    """
    if settings.host:
        return settings.host
    address = _address_towards(settings.nats_url)
    return _LOOPBACK if _is_loopback(address) else address


def join(host: str, port: int) -> str:
    """``host:port``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split(address: str) -> tuple[str, int]:
    """Host and port of ``host:port``; `ValueError` for another text."""
    match = _WITH_PORT.fullmatch(address)
    if match is None:
        raise ValueError(f"{address!r} is not written host:port")
    return match[1].strip("[]"), int(match[2])


def require_free(host: str, port: int) -> None:
    """`Unavailable` with the reason when ``port`` on ``host`` cannot be listened on."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:
        raise Unavailable(f"cannot listen on {join(host, port)}: {error.strerror}") from None


def hold_port(host: str = "127.0.0.1") -> int:
    """A free TCP port of ``host`` for a server that is yet to start, or is started again and again.

    A socket that does not listen stays bound to it for as long as this process lives. So the system gives it neither to
    an outgoing connection nor to a server that asks for any port. A server that sets SO_REUSEADDR may listen there
    (socket(7)); all of Outrider's and nats-server do.

    Raises:
        Unavailable: ``host`` is none of this machine's addresses.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with ExitStack() as stack:
            holder = stack.enter_context(socket.socket(family, kind))
            holder.bind(address)
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _held.push(stack.pop_all())
    except OSError as error:
        raise Unavailable(f"no port of {host} can be opened: {error.strerror}") from None
    return int(holder.getsockname()[1])


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback


def _address_towards(urls: str) -> str:
    """This host's address on the way to the first of ``urls`` that is elsewhere, else to one here; nothing is sent.

    Raises `OSError` if there is no way to any.
    """
    here, trouble = "", OSError()
    for url in urls.split(","):
        try:
            address = _source(url)
        except OSError as error:
            trouble = error
            continue
        if not _is_loopback(address):
            return address
        here = here or address
    if not here:
        raise trouble
    return here


def _source(url: str) -> str:
    peer = urlsplit(url)
    target = (peer.hostname or "127.0.0.1", peer.port or 4222)
    family, _, _, _, address = socket.getaddrinfo(*target, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])
