"""The verifier and the proposer as processes: over real gRPC and a real broker, and with parts of them killed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
from outrider.mesh.bus import Bus
from outrider.mesh.errors import AlreadyExists, InvalidRequest, NotFound, OutriderError, Overloaded, from_rpc
from outrider.mesh.registry import Registry
from outrider.mesh.rpc import channel, close_channels
from outrider.v1 import sampling_pb2, verifier_pb2_grpc
from outrider.v1 import verifier_pb2 as pb
from outrider.wire.frames import Finish, Frame, decode_frame, decode_tagged, frames_subject, token_subject
from outrider.wire.ids import pack_ids

from tests.processes import ServiceProcess, running
from tests.toy_model import save_toy
from tests.waiting import eventually

VOCABULARY = 50
Stub = verifier_pb2_grpc.VerifierStub


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_toy(tmp_path_factory.mktemp("models") / "toy", VOCABULARY)


@pytest.fixture(scope="module")
def verifier(shared_nats: str, directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("log") / "verifier.log"
    settings = {"max_running": 4, "max_waiting": 4, "page_size": 8, "drafters": '["random"]'}
    with running("verifier", log, nats_url=shared_nats, model=directory, instance="verifier-under-test", **settings):
        yield "verifier-under-test"


@pytest.fixture
async def registry(bus: Bus) -> AsyncIterator[Registry]:
    reader = Registry(bus, "test", "reader")
    await reader.start()
    yield reader
    reader.leave()


@pytest.fixture
async def stub(registry: Registry, verifier: str) -> AsyncIterator[Stub]:
    members = await registry.wait_for("verifier", lambda all_: any(m.instance == verifier for m in all_), 240)
    yield Stub(channel(next(member.address for member in members if member.instance == verifier)))
    await close_channels()


def message(name: str, max_tokens: int = 200, temperature: float = 1.0, **speculation: object) -> pb.SubmitRequest:
    return pb.SubmitRequest(
        request_id=name,
        tenant="t",
        prompt=pack_ids([1, 2, 3, len(name)]),
        sampling=sampling_pb2.SamplingParams(temperature=temperature, seed=17, max_tokens=max_tokens),
        speculation=sampling_pb2.Speculation(**speculation),
    )


async def follow(stub: Stub, name: str, start: int = 0) -> list[Frame]:
    call = stub.Follow(pb.FollowRequest(request_id=name, from_index=start))
    return [decode_frame(response.frame) async for response in call]


async def said(stub: Stub, request: pb.SubmitRequest) -> list[int]:
    await stub.Submit(request)
    return [token for frame in await follow(stub, request.request_id) for token in frame.tokens]


async def refused(call: grpc.aio.UnaryUnaryCall[object, object]) -> OutriderError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc(caught.value)


async def test_frames_reach_subscribers_and_followers_alike(bus: Bus, stub: Stub) -> None:
    heard: list[Frame] = []
    await bus.subscribe(token_subject("t", "alike"), lambda m: heard.append(decode_frame(m.data)))
    await stub.Submit(message("alike"))
    followed = await follow(stub, "alike")
    async with asyncio.timeout(60):
        while not heard or heard[-1].finish is None:
            await asyncio.sleep(0.01)
    assert heard == followed
    assert heard[-1].finish is Finish.LENGTH
    assert sum(len(frame.tokens) for frame in heard) == 200
    late = await follow(stub, "alike", start=150)
    assert late[0].first_index + len(late[0].tokens) > 150
    assert late[-1] == followed[-1]


async def test_a_gateway_gets_the_frames_of_its_requests_and_clients_those_of_a_stream(bus: Bus, stub: Stub) -> None:
    batches: list[list[tuple[int, Frame]]] = []
    published: list[Frame] = []
    await bus.subscribe(frames_subject("reading"), lambda message: batches.append(decode_tagged(message.data)))
    await bus.subscribe(token_subject("t", "*"), lambda message: published.append(decode_frame(message.data)))
    for tag, (name, stream) in enumerate((("whole", ""), ("stream", "stream"))):
        request = message(name)
        request.reader, request.tag, request.stream_id = frames_subject("reading"), tag, stream
        await stub.Submit(request)
        followed = await follow(stub, name)
        await eventually(lambda: batches and batches[-1][-1][1].finish is not None)
        assert [tagged for batch in batches for tagged in batch] == [(tag, each) for each in followed]
        batches.clear()
    await eventually(lambda: published and published[-1].finish is not None)
    assert {each.request for each in published} == {"stream"}


async def test_guesses_at_random_change_nothing(stub: Stub) -> None:
    plain = await said(stub, message("plain1", off=True))
    assert await said(stub, message("wild01", drafters=["random"])) == plain
    assert await said(stub, message("plain2", temperature=0.0, off=True)) == await said(
        stub, message("wild02", temperature=0.0, drafters=["random"])
    )


async def test_a_proposer_may_come_die_and_return_in_mid_stream(
    stub: Stub, registry: Registry, shared_nats: str, directory: Path, tmp_path: Path
) -> None:
    plain = await said(stub, message("plain3", off=True))
    settings = {"nats_url": shared_nats, "model": directory, "instance": "p1"}
    proposer = ServiceProcess("proposer", tmp_path / "proposer.log", **settings)
    try:
        for life in range(2):
            proposer.start()
            await registry.wait_for("proposer", lambda members: len(members) == 1, 240)
            accepted = 0
            async with asyncio.timeout(60):
                while not accepted:
                    await stub.Submit(message(f"life0{life}"))
                    frames = await follow(stub, f"life0{life}")
                    assert [token for frame in frames for token in frame.tokens] == plain
                    usage = frames[-1].usage
                    assert usage is not None
                    accepted = usage.accepted_tokens
            await stub.Submit(message(f"gone0{life}"))
            proposer.kill()
            frames = await follow(stub, f"gone0{life}")
            assert [token for frame in frames for token in frame.tokens] == await said(
                stub, message(f"stay0{life}", off=True)
            )
            await registry.wait_for("proposer", lambda members: not members, 60)
    finally:
        proposer.stop()


async def test_bad_requests_are_refused_by_name(stub: Stub) -> None:
    wrong = {
        "max_tokens": message("bad", max_tokens=-1),
        "temperature": message("bad", temperature=-0.5),
        "request_id": message("no spaces please"),
        "prompt": pb.SubmitRequest(request_id="bad", tenant="t", prompt=pack_ids([1] * 256)),
        "speculation.drafters": message("bad", drafters=["nobody"]),
        "speculation.max_nodes": message("bad", max_nodes=64),
    }
    for param, request in wrong.items():
        error = await refused(stub.Submit(request))
        assert isinstance(error, InvalidRequest), param
        assert error.param == param
    for subject in ("frames.", "frames.a.b", "frames.*", "tok.t.bad", "frames. "):
        asked = message("bad")
        asked.reader = subject
        assert (await refused(stub.Submit(asked))).param == "reader"
    outside = pb.SubmitRequest(request_id="bad", tenant="t", prompt=pack_ids([VOCABULARY]))
    assert "vocabulary" in (await refused(stub.Submit(outside))).message


async def test_a_request_that_is_being_served_is_not_taken_twice(stub: Stub) -> None:
    await stub.Submit(message("twice"))
    assert isinstance(await refused(stub.Submit(message("twice"))), AlreadyExists)
    await follow(stub, "twice")


async def test_a_full_queue_says_when_to_come_back(stub: Stub) -> None:
    calls = [stub.Submit(message(f"many{index}")) for index in range(24)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    errors = [from_rpc(answer) for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
    assert errors
    assert all(isinstance(error, Overloaded) and error.retry_after for error in errors)
    taken = [index for index, answer in enumerate(answers) if isinstance(answer, pb.SubmitResponse)]
    for index in taken:
        assert (await follow(stub, f"many{index}"))[-1].finish is Finish.LENGTH


async def test_cancelling_ends_a_request_and_frees_its_pages(stub: Stub) -> None:
    for reason in ("", "enough"):
        await stub.Submit(message("cancel"))
        assert (await stub.Cancel(pb.CancelRequest(request_id="cancel", reason=reason))).cancelled
        last = (await follow(stub, "cancel"))[-1]
        assert (last.finish, last.error or "") == (Finish.CANCELLED, reason)
    assert not (await stub.Cancel(pb.CancelRequest(request_id="cancel"))).cancelled
    described = await stub.Describe(pb.DescribeRequest())
    assert described.free_pages == described.pages
    assert (described.model, described.context_length, described.determinism) == ("toy", 256, "strict")


async def test_more_than_the_pages_hold_is_refused_and_less_is_served(
    registry: Registry, shared_nats: str, directory: Path, tmp_path: Path
) -> None:
    settings = {"page_size": 8, "pages": 20, "max_running": 4, "instance": "tight"}
    with running("verifier", tmp_path / "log", nats_url=shared_nats, model=directory, **settings):
        members = await registry.wait_for("verifier", lambda all_: any(m.instance == "tight" for m in all_), 240)
        member = next(member for member in members if member.instance == "tight")
        assert member.status["context_length"] == 160
        tight = Stub(channel(member.address))
        error = await refused(tight.Submit(message("over", max_tokens=158)))
        assert isinstance(error, InvalidRequest)
        assert error.param == "max_tokens"
        assert "160 tokens" in error.message
        assert len(await said(tight, message("fits", max_tokens=157))) == 157
    await close_channels()


async def test_an_unknown_request_cannot_be_followed(stub: Stub) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await follow(stub, "nobody")
    assert isinstance(from_rpc(caught.value), NotFound)


def test_a_limit_of_rows_that_leaves_none_for_prompts_is_told_in_one_sentence(
    shared_nats: str, directory: Path, tmp_path: Path
) -> None:
    settings = {"nats_url": shared_nats, "model": directory, "max_rows": 64, "max_running": 64}
    process = ServiceProcess("verifier", tmp_path / "log", **settings)
    process.start()
    assert process.wait() == 2
    assert "max_rows = 64 must be above max_running = 64" in process.log.read_text()


def test_pages_that_do_not_fit_are_told_in_one_sentence_with_those_that_do(
    shared_nats: str, directory: Path, tmp_path: Path
) -> None:
    process = ServiceProcess("verifier", tmp_path / "log", nats_url=shared_nats, model=directory, pages=1 << 40)
    process.start()
    assert process.wait() == 2
    assert re.search(r"pages = 1099511627776 of 16 tokens take \S+ GiB, and .* fit, or", process.log.read_text())


def test_a_missing_model_is_told_in_one_sentence(shared_nats: str, tmp_path: Path) -> None:
    for kind in ("verifier", "proposer"):
        process = ServiceProcess(kind, tmp_path / f"{kind}.log", nats_url=shared_nats, model=tmp_path / "nowhere")
        process.start()
        assert process.wait() == 2
        log = process.log.read_text()
        assert "nowhere" in log
        assert "Traceback" not in log


@pytest.mark.parametrize(
    ("variable", "allowed"), [("OUTRIDER_NATIVE_LEVEL", "here it must be "), ("OUTRIDER_KERNELS", "one of auto, torch")]
)
def test_a_variable_that_names_no_compiled_code_is_told_in_one_sentence(
    variable: str, allowed: str, shared_nats: str, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "mmx")
    for kind, settings in (("verifier", {"model": directory}), ("proposer", {"drafter": "suffix"})):
        process = ServiceProcess(kind, tmp_path / f"{kind}.log", nats_url=shared_nats, **settings)
        process.start()
        assert process.wait() == 2
        log = process.log.read_text()
        assert f"{variable} is 'mmx'; " in log
        assert allowed in log
        assert "Traceback" not in log


async def test_a_request_that_nobody_renews_is_cancelled(stub: Stub) -> None:
    asked = message("leased")
    asked.lease_ms = 1
    await stub.Submit(asked)
    last = (await follow(stub, "leased"))[-1]
    assert last.finish is Finish.CANCELLED
    assert last.verifier == "verifier-under-test"


async def test_a_lease_counts_from_its_last_renewal(stub: Stub) -> None:
    for name, granted, renewed in (("long", 20, 60_000), ("short", 60_000, 1)):
        asked = message(name)
        asked.lease_ms = granted
        await stub.Submit(asked)
        await stub.Renew(pb.RenewRequest(request_ids=[name, "unheard-of"], lease_ms=renewed))
    assert (await follow(stub, "long"))[-1].finish is Finish.LENGTH
    assert (await follow(stub, "short"))[-1].finish is Finish.CANCELLED


async def test_a_lease_that_cannot_be_is_refused(stub: Stub) -> None:
    asked = message("unleased")
    asked.lease_ms = -1
    assert "lease_ms" in (await refused(stub.Submit(asked))).message
    assert "lease_ms" in (await refused(stub.Renew(pb.RenewRequest(request_ids=["a"])))).message
