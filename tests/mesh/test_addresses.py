"""The address that a process announces."""

from __future__ import annotations

import socket
import struct

import pytest
from outrider.mesh.addresses import advertised, hold_port, join, own_host
from outrider.mesh.config import Settings, load
from outrider.mesh.errors import ConfigError, Unavailable

_IP_LOCAL_PORT_RANGE = 51
"""Of linux/in.h since Linux 6.3: the first and the last port that the system may give this socket."""


@pytest.mark.parametrize(
    ("host", "advertise", "expected"),
    [
        ("127.0.0.1", "", "127.0.0.1:9000"),
        ("::1", "", "[::1]:9000"),
        ("0.0.0.0", "", "127.0.0.1:9000"),
        ("0.0.0.0", "node-7", "node-7:9000"),
        ("0.0.0.0", "node-7:31000", "node-7:31000"),
        ("127.0.0.1", "fd00::7", "[fd00::7]:9000"),
        ("127.0.0.1", "[fd00::7]", "[fd00::7]:9000"),
        ("127.0.0.1", "[fd00::7]:31000", "[fd00::7]:31000"),
    ],
)
def test_peers_are_told_what_is_configured_with_the_port_that_reaches_us(
    host: str, advertise: str, expected: str
) -> None:
    settings = Settings(host=host, advertise=advertise, nats_url="nats://127.0.0.1:4222")
    assert advertised(settings, 9000) == expected


@pytest.mark.parametrize(
    ("host", "nats_url", "expected"),
    [
        ("", "nats://127.0.0.1:4222", "127.0.0.1"),
        ("", "nats://localhost", "127.0.0.1"),
        ("", "nats://nowhere.invalid:4222,nats://127.0.0.1:4222", "127.0.0.1"),
        ("10.1.2.3", "nats://127.0.0.1:4222", "10.1.2.3"),
        ("0.0.0.0", "nats://nowhere.invalid:4222", "0.0.0.0"),
    ],
)
def test_services_listen_where_they_are_told_and_else_on_the_way_to_nats(
    host: str, nats_url: str, expected: str
) -> None:
    assert own_host(Settings(host=host, nats_url=nats_url)) == expected


def test_without_a_way_to_nats_there_is_no_address_to_listen_on() -> None:
    with pytest.raises(OSError, match=r"Name or service not known|failure in name resolution"):
        own_host(Settings(nats_url="nats://nowhere.invalid:4222"))


@pytest.mark.parametrize(("host", "expected"), [("127.0.0.1", "127.0.0.1:9000"), ("fd00::7", "[fd00::7]:9000")])
def test_an_address_of_ipv6_stands_in_brackets(host: str, expected: str) -> None:
    assert join(host, 9000) == expected


@pytest.mark.parametrize("port", [0, 65536])
def test_a_port_that_there_is_not_is_refused(port: int) -> None:
    with pytest.raises(ConfigError, match="from 1 to 65535"):
        advertised(Settings(advertise=f"node-7:{port}"), 9000)


def test_an_address_with_a_path_or_spaces_is_refused() -> None:
    for wrong in ("http://node-7", "node 7"):
        with pytest.raises(ConfigError, match="advertise"):
            load(Settings, "mesh", flags={"advertise": wrong})


def _of_one_port(port: int) -> socket.socket:
    listener = socket.socket()
    try:
        listener.setsockopt(socket.IPPROTO_IP, _IP_LOCAL_PORT_RANGE, struct.pack("=HH", port, port))
    except OSError:
        listener.close()
        pytest.skip("this kernel is older than Linux 6.3")
    return listener


def test_a_held_port_is_given_to_nobody_else() -> None:
    port = hold_port()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        _of_one_port(port) as going_out,
        pytest.raises(OSError, match="Cannot assign requested address"),
    ):
        going_out.connect(server.getsockname())
    with _of_one_port(port) as asking, pytest.raises(OSError, match="Address already in use"):
        asking.bind(("127.0.0.1", 0))


def test_servers_listen_on_a_held_port_one_after_the_other() -> None:
    port = hold_port()
    for _ in range(2):
        with socket.create_server(("127.0.0.1", port)) as server, socket.create_connection(("127.0.0.1", port)) as ours:
            theirs, address = server.accept()
            theirs.close()
            assert address == ours.getsockname()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


def test_a_port_of_another_machine_cannot_be_held() -> None:
    with pytest.raises(Unavailable, match=r"192\.0\.2\.1"):
        hold_port("192.0.2.1")
