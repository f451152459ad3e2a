"""Brokers with little room to store anything, and ways to take the rest of it and to give it back."""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import nats
import pytest

from tests.broker import Broker

_FILLER = "filler"
_PIECE = 16 << 10


class SmallStore(ABC):
    """A broker whose streams are not bounded by a size of their own."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    async def prepare(self) -> None:
        """Makes the ledger's streams as an operator may have: what they can hold is not set aside for them."""
        client = await nats.connect(self.broker.url)
        js = client.jetstream()
        await js.add_stream(name="outrider-requests", subjects=["ask.*.*.*"], max_msgs_per_subject=1)
        await js.add_stream(name="outrider-tokens", subjects=["tok.*.*"])
        await client.close()

    @abstractmethod
    async def fill(self) -> None:
        """Leaves no room."""

    @abstractmethod
    async def free(self) -> None:
        """Ends `fill`."""


class Limited(SmallStore):
    """One by nats-server's own limit."""

    async def fill(self) -> None:
        """Another stream takes all that the limit allows."""
        client = await nats.connect(self.broker.url)
        js = client.jetstream()
        await js.add_stream(name=_FILLER, subjects=[_FILLER])
        for size in (_PIECE, 64, 1):
            with suppress(nats.js.errors.ServiceUnavailableError):
                while True:
                    await js.publish(_FILLER, bytes(size))
        await client.close()

    async def free(self) -> None:
        """That stream goes."""
        client = await nats.connect(self.broker.url)
        await client.jetstream().delete_stream(_FILLER)
        await client.close()


class Full(SmallStore):
    """One on a small file system."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        super().__init__(broker)
        self._directory = directory

    async def fill(self) -> None:
        """A file takes all the space."""
        with (self._directory / _FILLER).open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(_PIECE))

    async def free(self) -> None:
        """That file goes."""
        os.unlink(self._directory / _FILLER)


@contextmanager
def small_store(kind: str, directory: Path) -> Iterator[SmallStore]:
    """One of ``kind`` "limited" or "full", which runs; the latter is skipped where nothing may be mounted."""
    store, config = directory / "small", directory / "nats.conf"
    store.mkdir()
    most = 2 << 20 if kind == "limited" else 1 << 30
    config.write_text(f'jetstream {{ store_dir: "{store}", max_file_store: {most} }}')
    broker = Broker("-c", str(config))
    if kind == "limited":
        broker.start()
        yield Limited(broker)
        return broker.kill()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(store)], capture_output=True)
    if mounted.returncode:
        pytest.skip("nothing may be mounted here")
    try:
        broker.start()
        yield Full(broker, store)
        broker.kill()
    finally:
        subprocess.run(["umount", "--lazy", str(store)], check=True)
