"""The brokers that `outrider up` of this user runs on this host."""

from __future__ import annotations

from outrider.cli.bus.directory import BusDirectory
from outrider.mesh.access import BROKERS
from outrider.mesh.errors import ConfigError


def running_broker() -> str | None:
    """The URL of the one broker that runs; None without one.

    Raises:
        ConfigError: several run.
    """
    directories = {address: BusDirectory(path) for address, path in BROKERS.all().items()}
    urls = [f"{bus.scheme}://{address}" for address, bus in directories.items() if bus.serves(address)]
    if len(urls) > 1:
        raise ConfigError(f"several meshes run on this host: --nats-url is one of {', '.join(urls)}")
    return urls[0] if urls else None
