"""A real broker for every test that wants one."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from outrider.mesh.bus import Bus

from tests.broker import Broker

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Threads that spin for one another crawl on a busy machine; it is read when torch is first imported."""

if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")
"""Without a GPU, kernels run in Triton's interpreter; it is read when a kernel is first imported."""


@pytest.fixture(scope="session")
def shared_nats() -> Iterator[str]:
    """URL of a nats-server that lives as long as the session and is never taken away."""
    broker = Broker()
    broker.start()
    yield broker.url
    broker.kill()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A nats-server of the test's own, to be stopped and started at will."""
    broker = Broker()
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture(scope="session")
def jetstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a nats-server with JetStream, which lives as long as the session."""
    broker = Broker()
    broker.start("--jetstream", "--store_dir", str(tmp_path_factory.mktemp("jetstream")))
    yield broker.url
    broker.kill()


@pytest.fixture
async def bus(shared_nats: str) -> AsyncIterator[Bus]:
    """A connection to the shared broker."""
    bus = Bus()
    await bus.connect(shared_nats, "test", wait_s=10)
    yield bus
    await bus.close()
