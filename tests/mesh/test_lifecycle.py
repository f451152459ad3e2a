"""A service's process from its start to its exit code, with a real broker."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from signal import SIGCONT, SIGINT, SIGKILL, SIGSTOP, SIGTERM

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Bus
from outrider.mesh.errors import Unavailable, Unreachable
from outrider.mesh.registry import Member, Registry, State
from outrider.mesh.rpc import call, channel, close_channels, stub
from outrider.mesh.tasks import Tasks
from outrider.v1 import tokenizer_pb2 as pb
from outrider.v1 import tokenizer_pb2_grpc as rpc

from tests.broker import Broker
from tests.mesh.processes import Tiny
from tests.waiting import eventually

Start = Callable[..., Tiny]


@pytest.fixture
def start(tmp_path: Path, shared_nats: str) -> Iterator[Start]:
    started: list[Tiny] = []

    def start(*flags: str, **env: str) -> Tiny:
        log = tmp_path / f"tiny-{len(started)}.log"
        nats = () if "--nats-url" in flags else ("--nats-url", shared_nats)
        started.append(Tiny(log, *nats, *flags, **env))
        return started[-1]

    yield start
    for tiny in started:
        tiny.kill()


@pytest.fixture
async def registry(bus: Bus) -> AsyncIterator[Registry]:
    tasks = Tasks()
    registry = Registry(bus, "test", "test-registry", tasks=tasks)
    await registry.start()
    yield registry
    await tasks.cancel()
    await close_channels()


async def test_a_process_is_found_serves_and_leaves_with_code_0(start: Start, registry: Registry) -> None:
    tiny = start("--instance", "tiny-one")
    (member,) = await registry.wait_for("tiny", bool, timeout=30)
    assert (member.instance, member.state, member.status["model"]) == ("tiny-one", State.READY, "tiny")
    assert member.status["pid"] == tiny.process.pid
    answer = await rpc.TokenizerStub(channel(member.address)).Describe(pb.DescribeTokenizerRequest())
    assert answer.model == "tiny-one"
    assert tiny.title == "outrider tiny"
    tiny.signal(SIGTERM)
    assert await tiny.exit_code() == 0
    await registry.wait_for("tiny", lambda members: not members, timeout=1)


async def test_a_killed_process_is_gone_from_the_registry(start: Start, registry: Registry) -> None:
    tiny = start()
    await registry.wait_for("tiny", bool, timeout=30)
    tiny.signal(SIGKILL)
    await registry.wait_for("tiny", lambda members: not members, timeout=20)


async def test_readiness_follows_the_service_while_it_loads(start: Start) -> None:
    port, probes = hold_port(), hold_port()
    tiny = start("--port", str(port), "--metrics-port", str(probes), "--load-s", "1.5")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{probes}", trust_env=False) as http:
        await tiny.logged("NATS is connected")
        assert (await http.get("/healthz")).status_code == 200
        assert (await http.get("/readyz")).json() == {"status": "starting"}
        assert (await http.get("/readyz")).status_code == 503
        health = health_pb2_grpc.HealthStub(channel(f"127.0.0.1:{port}"))
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == 2
        await tiny.logged("ready")
        assert (await http.get("/readyz")).json() == {"status": "ready"}
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == 1
        metrics = (await http.get("/metrics")).text
        assert "outrider_bus_connected 1.0" in metrics
        assert re.search(r"^outrider_bus_subscriptions [1-9]", metrics, re.MULTILINE)
        assert re.search(r"^outrider_tasks [1-9]", metrics, re.MULTILINE)
        assert (await http.get("/nothing")).status_code == 404
        assert (await http.post("/readyz")).status_code == 405
    await close_channels()


async def test_sigterm_lets_work_in_flight_end(start: Start, registry: Registry) -> None:
    tiny = start("--work-s", "1")
    (member,) = await registry.wait_for("tiny", bool, timeout=30)
    working = asyncio.ensure_future(rpc.TokenizerStub(channel(member.address)).Describe(pb.DescribeTokenizerRequest()))
    await tiny.logged("working")
    tiny.signal(SIGTERM)
    await registry.wait_for("tiny", lambda members: members[0].state == State.DRAINING, timeout=5)
    assert (await working).model == member.instance
    assert await tiny.exit_code() == 0


async def test_work_that_does_not_end_is_cut_off_after_the_time_to_drain(start: Start) -> None:
    tiny = start("--work-s", "3600", "--drain-s", "0.3")
    await tiny.logged("ready")
    tiny.signal(SIGINT)
    assert await tiny.exit_code() == 0
    assert (await tiny.logged("cut short"))["step"] == "drain"


async def test_a_second_signal_does_not_wait_for_the_drain(start: Start) -> None:
    tiny = start("--work-s", "3600", "--drain-s", "3600")
    await tiny.logged("ready")
    tiny.signal(SIGTERM)
    await tiny.logged("draining")
    tiny.signal(SIGTERM)
    assert await tiny.exit_code() == 0


async def test_a_handler_that_ignores_its_cancellation_does_not_keep_the_process(
    start: Start, registry: Registry
) -> None:
    tiny = start("--work-s", "3600", "--drain-s", "0", "--fault", "deaf")
    (member,) = await registry.wait_for("tiny", bool, timeout=30)
    call = asyncio.ensure_future(rpc.TokenizerStub(channel(member.address)).Describe(pb.DescribeTokenizerRequest()))
    await tiny.logged("working")
    tiny.signal(SIGTERM)
    assert await tiny.exit_code() == 0
    with pytest.raises(grpc.aio.AioRpcError):
        await call


async def test_sigterm_while_loading_ends_the_process(start: Start) -> None:
    tiny = start("--load-s", "3600")
    await tiny.logged("NATS is connected")
    tiny.signal(SIGTERM)
    assert await tiny.exit_code() == 0


async def test_a_process_waits_for_nats_and_says_so(start: Start, broker: Broker) -> None:
    broker.kill()
    tiny = start("--nats-url", broker.url)
    assert (await tiny.logged("waiting for NATS"))["url"] == broker.url
    await asyncio.to_thread(broker.start)
    await tiny.logged("ready")


async def test_a_process_gives_up_on_nats_after_the_stated_time(start: Start) -> None:
    url = f"nats://127.0.0.1:{hold_port()}"
    tiny = start("--nats-url", url, "--nats-wait-s", "0.5")
    assert await tiny.exit_code() == 3
    assert tiny.output.splitlines()[-1].startswith(f"outrider tiny: NATS at {url} was not reached within 0.5 s")


async def test_a_process_that_finds_no_way_to_nats_ends_with_one_sentence(start: Start) -> None:
    url = "nats://nowhere.invalid:4222"
    tiny = start("--nats-url", url, "--nats-wait-s", "0.5")
    assert await tiny.exit_code() == 3
    assert tiny.output.splitlines()[-1].startswith(f"outrider tiny: there is no way to NATS at {url} (")


@pytest.mark.parametrize("flag", ["--port", "--metrics-port"])
async def test_a_port_in_use_is_one_sentence_and_code_3(start: Start, flag: str, shared_nats: str) -> None:
    port = shared_nats.rpartition(":")[2]
    tiny = start(flag, port)
    assert await tiny.exit_code() == 3
    assert tiny.output.splitlines()[-1] == f"outrider tiny: cannot listen on 127.0.0.1:{port}: Address already in use"
    assert "Traceback" not in tiny.output


async def test_what_a_service_cannot_start_without_is_one_sentence_and_code_3(start: Start) -> None:
    tiny = start("--fault", "missing-model")
    assert await tiny.exit_code() == 3
    assert tiny.output.splitlines()[-1] == "outrider tiny: no model in /nowhere"
    assert "Traceback" not in tiny.output


async def test_a_bug_at_the_start_is_logged_and_code_1(start: Start) -> None:
    tiny = start("--fault", "bug")
    assert await tiny.exit_code() == 1
    assert "KeyError" in (await tiny.logged("crashed"))["exception"]


async def test_an_unknown_key_is_one_sentence_and_code_2(start: Start) -> None:
    tiny = start(OUTRIDER_TINY_LAOD_S="1")
    assert await tiny.exit_code() == 2
    assert tiny.output == (
        "outrider tiny: variable OUTRIDER_TINY_LAOD_S is no setting (did you mean OUTRIDER_TINY_LOAD_S?)\n"
    )


async def test_help_lists_every_key(start: Start) -> None:
    tiny = start("--help")
    assert await tiny.exit_code() == 0
    assert "--nats-wait-s" in tiny.output
    assert "seconds that loading takes" in tiny.output


@pytest.mark.parametrize("what", ["task", "thread"])
async def test_a_background_task_or_thread_that_dies_ends_the_process(start: Start, bus: Bus, what: str) -> None:
    tiny = start()
    await tiny.logged("ready")
    bus.publish("tiny.fault", what.encode())
    assert await tiny.exit_code() == 1
    died = await tiny.logged("a background task died" if what == "task" else "a thread died")
    assert f"RuntimeError: {what}" in died["exception"]


async def describe(member: Member) -> pb.DescribeTokenizerResponse:
    """The process's answer to Describe; only keepalive notices soon that a frozen process gives none."""
    described = stub(rpc.TokenizerStub, member.address).Describe
    answer: pb.DescribeTokenizerResponse = await call(described, pb.DescribeTokenizerRequest(), timeout=3600)
    return answer


async def test_a_call_to_a_process_that_is_killed_fails_as_unavailable(start: Start, registry: Registry) -> None:
    tiny = start("--work-s", "3600")
    (member,) = await registry.wait_for("tiny", bool, timeout=30)
    calling = asyncio.create_task(describe(member))
    await tiny.logged("working")
    tiny.signal(SIGKILL)
    with pytest.raises(Unreachable) as caught:
        await calling
    assert caught.value.broke, "the process may have died of the call"


async def test_a_call_to_a_process_that_froze_fails_as_unavailable(start: Start, registry: Registry) -> None:
    tiny = start("--work-s", "3600")
    (member,) = await registry.wait_for("tiny", bool, timeout=30)
    calling = asyncio.create_task(describe(member))
    await tiny.logged("working")
    tiny.signal(SIGSTOP)
    with pytest.raises(Unavailable) as caught:
        await calling
    assert not isinstance(caught.value, Unreachable), "a frozen process is taken for one that may have died of the call"
    tiny.signal(SIGCONT)


async def test_a_process_outlives_its_broker(start: Start, broker: Broker) -> None:
    tiny = start("--nats-url", broker.url)
    await tiny.logged("ready")
    broker.kill()
    await tiny.logged("NATS is lost")
    await asyncio.to_thread(broker.start)
    bus = Bus()
    await bus.connect(broker.url, "test", wait_s=10)
    drained: asyncio.Queue[bytes] = asyncio.Queue()
    await bus.subscribe("tiny.drained", lambda message: drained.put_nowait(message.data))
    await eventually(lambda: tiny.count("NATS is connected") == 2)
    tiny.signal(SIGTERM)
    assert (await drained.get()).startswith(b"tiny-")
    assert await tiny.exit_code() == 0
    await bus.close()
