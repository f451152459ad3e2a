"""The address that a process announces."""

from __future__ import annotations

import pytest
from outrider.mesh.addresses import advertised, beside, join, parted
from outrider.mesh.config import Settings, load
from outrider.mesh.errors import ConfigError


@pytest.mark.parametrize(
    ("host", "advertise", "told"),
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
def test_peers_are_told_what_is_configured_with_the_port_that_reaches_us(host: str, advertise: str, told: str) -> None:
    settings = Settings(host=host, advertise=advertise, nats_url="nats://127.0.0.1:4222")
    assert advertised(settings, 9000) == told
    assert beside(settings, 9000) == ("" if told.endswith(":31000") else told)


@pytest.mark.parametrize("host", ["127.0.0.1", "fd00::7", "node-7"])
def test_an_address_falls_into_what_it_was_made_of(host: str) -> None:
    assert parted(join(host, 9000)) == (host, 9000)


@pytest.mark.parametrize("port", [0, 65536])
def test_a_port_that_there_is_not_is_refused(port: int) -> None:
    with pytest.raises(ConfigError, match="from 1 to 65535"):
        advertised(Settings(advertise=f"node-7:{port}"), 9000)


def test_an_address_with_a_path_or_spaces_is_refused() -> None:
    for wrong in ("http://node-7", "node 7"):
        with pytest.raises(ConfigError, match="advertise"):
            load(Settings, "mesh", flags={"advertise": wrong})
