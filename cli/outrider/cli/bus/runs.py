"""The brokers that `outrider up` of this user runs on this host."""

from __future__ import annotations

from contextlib import suppress

from outrider.cli.bus.directory import BusDirectory
from outrider.mesh.access import BROKERS
from outrider.mesh.errors import ConfigError


def running_broker() -> str | None:
    """The URL of the one broker that runs; None without one.

    Raises:
        ConfigError: several run.
    """
    directories = {address: BusDirectory(path) for address, path in BROKERS.all().items()}
    running = {f"{bus.scheme}://{address}": bus for address, bus in directories.items() if bus.serves(address)}
    if len(running) > 1:
        choices = "".join(f"\n  --nats-url {url}{_mesh(bus)}" for url, bus in running.items())
        raise ConfigError(f"several meshes of this user run on this host: --nats-url selects one of them:{choices}")
    return next(iter(running), None)


def _mesh(bus: BusDirectory) -> str:
    """What else is known of the mesh with that broker."""
    with suppress(OSError):
        return f" is that of {bus.gateway_url.read_text()} (logs in {bus.path.parent})"
    return f" (logs in {bus.path.parent})"
