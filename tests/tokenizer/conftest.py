"""A tokenizer service with a small vocabulary."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from outrider.engine.text import Tokenizer
from outrider.mesh.bus import Bus
from outrider.mesh.registry import Member
from outrider.mesh.rpc import channel, close_channels
from outrider.v1 import tokenizer_pb2_grpc as pb_grpc

from tests.engine.text.makers import CHATML, byte_level, write
from tests.processes import ServiceProcess, running
from tests.tokenizer.members import member_named

_INSTANCE = "tokenizer-under-test"


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = write(tmp_path_factory.mktemp("models"), byte_level(), chat_template=CHATML)
    return made.rename(made.with_name("small"))


@pytest.fixture(scope="session")
def local(directory: Path) -> Tokenizer:
    """The tokenizer that the service must agree with."""
    return Tokenizer.load(directory)


@pytest.fixture(scope="session")
def service(shared_nats: str, directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A running tokenizer."""
    log = tmp_path_factory.mktemp("log") / "tokenizer.log"
    with running("tokenizer", log, nats_url=shared_nats, model=directory, instance=_INSTANCE) as process:
        yield process


@pytest.fixture
async def member(bus: Bus, service: ServiceProcess) -> Member:
    """The service's entry in the registry."""
    return await member_named(bus, _INSTANCE)


@pytest.fixture
async def stub(member: Member) -> AsyncIterator[pb_grpc.TokenizerStub]:
    yield pb_grpc.TokenizerStub(channel(member.address))
    await close_channels()
