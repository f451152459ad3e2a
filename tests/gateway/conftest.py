"""A mesh that all tests of the gateway share, as long as they leave it alive."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from outrider.mesh.bus import Bus
from outrider.mesh.registry import Registry
from outrider.mesh.rpc import close_channels

from tests.gateway.stack import RUNNING, WAITING, Stack, stack


@pytest.fixture(scope="session")
def shared(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A tokenizer, a verifier with a short queue and a gateway."""
    with stack(directory, tmp_path_factory.mktemp("logs")) as made:
        made.add("gateway", port=made.port, max_body_bytes=1 << 20)
        made.add_model("tokenizer", trace_exporter="console")
        made.add_model("verifier", instance="verifier", max_running=RUNNING, max_waiting=WAITING)
        made.wait_ready()
        yield made


@pytest.fixture
async def registry(shared: Stack) -> AsyncIterator[Registry]:
    """The shared mesh's registry."""
    bus = Bus()
    await bus.connect(shared.broker.url, "test", wait_s=10)
    reader = Registry(bus, "test", "reader")
    await reader.start()
    yield reader
    reader.leave()
    await bus.close()
    await close_channels()
