"""Brokers with small stores, which tests fill and free."""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import nats
import pytest
from nats.js import JetStreamContext

from tests.broker import Broker

_FILLER = "filler"
_PIECE = 16 << 10


class SmallStore(ABC):
    """A broker whose streams have no limits of their own."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    async def prepare(self) -> None:
        """Creates the ledger's streams without reserved space, as an operator may have done."""
        async with jetstream(self.broker) as js:
            await js.add_stream(name="outrider-requests", subjects=["ask.*.*.*"], max_msgs_per_subject=1)
            await js.add_stream(name="outrider-tokens", subjects=["tok.*.*"])

    @abstractmethod
    async def fill(self) -> None:
        """Fills the store."""

    @abstractmethod
    async def free(self) -> None:
        """Ends `fill`."""


class Limited(SmallStore):
    """A store with nats-server's own limit."""

    async def fill(self) -> None:
        """Fills another stream up to the limit."""
        async with jetstream(self.broker) as js:
            await js.add_stream(name=_FILLER, subjects=[_FILLER])
            for size in (_PIECE, 64, 1):
                with suppress(nats.js.errors.ServiceUnavailableError):
                    while True:
                        await js.publish(_FILLER, bytes(size))

    async def free(self) -> None:
        """Deletes the filling stream."""
        async with jetstream(self.broker) as js:
            await js.delete_stream(_FILLER)


class Full(SmallStore):
    """A store on a small file system."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        super().__init__(broker)
        self._directory = directory

    async def fill(self) -> None:
        """Fills the file system with a file."""
        with (self._directory / _FILLER).open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(_PIECE))

    async def free(self) -> None:
        """Deletes the filling file."""
        os.unlink(self._directory / _FILLER)


@asynccontextmanager
async def jetstream(broker: Broker) -> AsyncIterator[JetStreamContext]:
    """JetStream over a connection that is closed afterwards."""
    client = await nats.connect(broker.url)
    try:
        yield client.jetstream()
    finally:
        await client.close()


@contextmanager
def small_store(kind: str, directory: Path) -> Iterator[SmallStore]:
    """Runs a broker with a store of ``kind`` "limited" or "full"; skips the test if "full" cannot be mounted."""
    store, config = directory / "small", directory / "nats.conf"
    store.mkdir()
    most = 2 << 20 if kind == "limited" else 1 << 30
    config.write_text(f'jetstream {{ store_dir: "{store}", max_file_store: {most} }}')
    broker = Broker("-c", str(config))
    if kind == "limited":
        with _running(broker):
            yield Limited(broker)
        return
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(store)], capture_output=True)
    if mounted.returncode:
        pytest.skip("nothing may be mounted here")
    try:
        with _running(broker):
            yield Full(broker, store)
    finally:
        subprocess.run(["umount", "--lazy", str(store)], check=True)


@contextmanager
def _running(broker: Broker) -> Iterator[None]:
    broker.start()
    try:
        yield
    finally:
        broker.kill()
