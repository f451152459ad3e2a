"""A nats-server that serves the users of a mesh, each with its own rights and no more."""

from __future__ import annotations

from pathlib import Path

from outrider.cli.bus.directory import BusDirectory
from outrider.mesh.bus import inbox
from outrider.wire.subjects import CLIENT

from tests.broker import Broker

_TEST = "users: [\n{user: test, password: test},"


def guarded_broker(directory: BusDirectory, *arguments: str) -> Broker:
    """A broker, not started yet, that serves the users in ``directory`` only."""
    directory.write()
    return Broker("--config", str(directory.users), "--pid", str(directory.pid), *_log(directory), *arguments)


def open_broker(directory: BusDirectory, *arguments: str) -> Broker:
    """As `guarded_broker`, but whoever has no seed is served too, with all rights: a test.

    Gateways may answer tests, whose inboxes are not those of clients.
    """
    directory.write()
    users = directory.users.read_text().replace("users: [", _TEST, 1)
    users = users.replace(f'"{inbox(CLIENT)}.>"', '"_INBOX.>"', 1)
    config: Path = directory.path / "open.conf"
    config.write_text(f"{users}no_auth_user: test\n")
    return Broker("--config", str(config), *_log(directory), *arguments)


def _log(directory: BusDirectory) -> list[str]:
    """A file for the log, which has a line for each forbidden operation: nobody empties the broker's pipe."""
    return ["--log", str(directory.path / "nats.log")]
