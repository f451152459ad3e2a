"""Messages that no verifier of ours sends: they end their own stream, and neither the proposer nor other streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import grpc
import pytest
from outrider.engine.models import pocket
from outrider.mesh.bus import Bus
from outrider.mesh.registry import Member, Registry
from outrider.mesh.rpc import channel, close_channels
from outrider.v1 import proposer_pb2 as pb
from outrider.v1.proposer_pb2_grpc import ProposerStub
from outrider.v1.sampling_pb2 import SamplingParams
from outrider.wire.ids import pack_ids

from tests.processes import ServiceProcess, running

NAME = "proposer-that-lives"
GOOD = pb.OpenSession(session=1, tokens=pack_ids([1, 2, 3] * 8), max_nodes=8, prompt=24)


def opened(**changes: object) -> pb.DraftRequest:
    session = pb.OpenSession()
    session.CopyFrom(GOOD)
    for name, value in changes.items():
        setattr(session, name, value)
    return pb.DraftRequest(opens=[session])


def drawn(**sampling: float) -> pb.DraftRequest:
    session = pb.OpenSession(sampling=SamplingParams(**sampling))
    session.MergeFrom(GOOD)
    return pb.DraftRequest(opens=[session])


def committed(tokens: bytes) -> pb.DraftRequest:
    commit = pb.CommitTokens(session=1, length=24, tokens=tokens)
    return pb.DraftRequest(opens=[GOOD], commits=[commit])


MALFORMED = {
    "half a token": opened(tokens=b"abc"),
    "a token beyond the vocabulary": opened(tokens=pack_ids([1 << 30])),
    "a token below 0": opened(tokens=pack_ids([-1])),
    "no tokens": opened(tokens=b"", prompt=0),
    "a prompt longer than the tokens": opened(prompt=25),
    "no nodes": opened(max_nodes=0),
    "too many nodes": opened(max_nodes=1 << 30),
    "one session twice": pb.DraftRequest(opens=[GOOD, GOOD]),
    "a cold temperature": drawn(temperature=-1.0),
    "no temperature at all": drawn(temperature=float("nan")),
    "a temperature above all bounds": drawn(temperature=101.0),
    "a share above 1": drawn(temperature=1.0, top_p=7.0),
    "a decided token beyond the vocabulary": committed(pack_ids([1 << 30])),
    "half a decided token": committed(b"abc"),
    "states that nobody asked for": pb.DraftRequest(opens=[GOOD], states=[pb.HiddenStates(session=1, states=bytes(8))]),
}


@pytest.fixture(scope="module")
def proposer(shared_nats: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    log, target = tmp_path_factory.mktemp("log") / "proposer.log", pocket.directory("target")
    with running("proposer", log, nats_url=shared_nats, target=target, instance=NAME) as process:
        process.wait_ready()
        yield process


@pytest.fixture
async def member(bus: Bus, proposer: ServiceProcess) -> AsyncIterator[Member]:
    registry = Registry(bus, "test", "reader")
    await registry.start()
    members = await registry.wait_for("proposer", lambda all_: any(m.instance == NAME for m in all_), 240)
    registry.leave()
    yield next(member for member in members if member.instance == NAME)
    await close_channels()


async def trees(member: Member, *requests: pb.DraftRequest) -> pb.Tree:
    """The first tree of a stream with these messages."""
    hello = pb.VerifierHello(instance="test", vocabulary=str(member.status["vocabulary"]))

    async def messages() -> AsyncIterator[pb.DraftRequest]:
        yield pb.DraftRequest(hello=hello)
        for request in requests:
            yield request
        await done.wait()

    done = asyncio.Event()
    try:
        async for response in ProposerStub(channel(member.address)).Draft(messages(), timeout=60):
            if response.trees:
                return response.trees[0]
        raise AssertionError("the stream ended")
    finally:
        done.set()


@pytest.mark.parametrize("name", MALFORMED)
async def test_a_malformed_message_ends_its_stream_alone(member: Member, proposer: ServiceProcess, name: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await trees(member, MALFORMED[name])
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (await trees(member, pb.DraftRequest(opens=[GOOD]))).session == 1
    assert proposer.alive
