"""Streams that outlive what they depend on: the broker, their verifier, a gateway's shutdown."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import pytest
from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Bus, Message
from outrider.wire.frames import Frame, decode_tagged, encode_frame, encode_tagged, frames_subject

from tests.gateway.stack import MODEL, Stack, Streamed, stack
from tests.latch import FEW
from tests.processes import ServiceProcess, running
from tests.waiting import eventually

LENGTH = 200
_SEEDS = range(4)


@pytest.fixture(scope="module")
def mesh(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A tokenizer and a gateway; tests start and stop verifiers."""
    with stack(directory, tmp_path_factory.mktemp("logs")) as made:
        made.add("gateway", port=made.port, silence_s=0.5, place_s=240, resume_s=240)
        made.add_model("tokenizer")
        made.add_model("verifier", instance="first")
        made.wait_ready()
        yield made


@pytest.fixture(scope="module")
def expected(mesh: Stack) -> list[Streamed]:
    """The streams of a mesh without failures."""
    return asyncio.run(_all(mesh))


def test_without_jetstream_only_what_a_verifier_still_has_is_resumed(mesh: Stack) -> None:
    body = {"model": MODEL, "prompt": "a", "max_tokens": 2, "stream": True}
    response = httpx.post(f"{mesh.url}/v1/completions", json=body, timeout=60)
    assert response.content.count(b"data: ") >= 2
    stream = f"{mesh.url}/v1/streams/{response.headers['x-request-id']}"
    assert httpx.get(stream, timeout=60).content == response.content
    for method, url in (("GET", f"{mesh.url}/v1/streams/unheard-of"), ("DELETE", stream)):
        refused = httpx.request(method, url, timeout=60)
        assert refused.status_code == 503
        assert "NATS has no JetStream" in refused.json()["error"]["message"]


def test_without_jetstream_a_response_works_and_storing_it_is_refused(mesh: Stack) -> None:
    body = {"model": MODEL, "input": "a", "max_output_tokens": 2}
    with httpx.Client(base_url=f"{mesh.url}/v1", timeout=60) as http:
        made = http.post("/responses", json=body)
        assert made.status_code == 200
        assert http.get(f"/responses/{made.json()['id']}").json() == made.json()
        refused = http.post("/responses", json=body | {"background": True})
    assert refused.status_code == 503
    assert "JetStream" in refused.json()["error"]["message"]


EDITS = {
    "repetition_penalty": 1.1,
    "frequency_penalty": 0.1,
    "presence_penalty": 0.3,
    "logit_bias": {"40": 3},
    "bad_words": ["a", [50, 51]],
    "min_tokens": 100,
    "top_p": 0.95,
    "logprobs": 2,
    "echo": True,
}


def _streams(url: str) -> list[Streamed]:
    """Plain streams, and some with many sampling parameters."""
    guided = {"structured_outputs": {"regex": "[a-z ]{9000}"}, "ignore_eos": False}
    more = [{}, EDITS, guided, EDITS | {"temperature": 0.6}]
    return [Streamed(url, prompt=f"def f{seed}(", seed=seed, max_tokens=LENGTH, **more[seed]) for seed in _SEEDS]


async def _all(mesh: Stack, meanwhile: Callable[[], None] = lambda: None, url: str = "") -> list[Streamed]:
    """Runs the streams, and calls the function when all have begun and none has ended."""
    streams = _streams(url or mesh.url)
    async with asyncio.TaskGroup() as group:
        with mesh.latch.at(FEW):
            for stream in streams:
                group.create_task(stream.run())
            await eventually(lambda: all(stream.tokens for stream in streams))
            await asyncio.to_thread(meanwhile)
    return streams


def _agree(seen: list[Streamed], expected: list[Streamed]) -> None:
    for one, other in zip(seen, expected, strict=True):
        assert one.tokens == other.tokens
        assert one.logprobs == other.logprobs
        assert one.text == other.text
        assert one.finish == "length"
        assert one.usage["completion_tokens"] == LENGTH


async def test_streams_complete_while_the_broker_is_gone(mesh: Stack, expected: list[Streamed]) -> None:
    seen = await _all(mesh, mesh.broker.kill)
    _agree(seen, expected)
    fresh = Streamed(mesh.url, prompt="def f0(", seed=0, max_tokens=LENGTH)
    await fresh.run()
    assert fresh.tokens == expected[0].tokens
    assert mesh.ready()
    await asyncio.to_thread(mesh.broker.start)


async def test_streams_go_on_when_the_broker_comes_back(mesh: Stack, expected: list[Streamed]) -> None:
    def restart() -> None:
        mesh.broker.kill()
        mesh.broker.start()

    _agree(await _all(mesh, restart), expected)


async def test_streams_complete_while_the_broker_is_frozen(mesh: Stack, expected: list[Streamed]) -> None:
    _agree(await _all(mesh, mesh.broker.freeze), expected)
    mesh.broker.thaw()


@pytest.fixture
async def bus(mesh: Stack) -> AsyncIterator[Bus]:
    bus = Bus()
    await bus.connect(mesh.broker.url, "test", wait_s=10)
    yield bus
    await bus.close()


async def test_frames_that_come_too_early_or_again_change_nothing(
    mesh: Stack, expected: list[Streamed], bus: Bus
) -> None:
    stream = Streamed(mesh.url, prompt="def f0(", seed=0, max_tokens=LENGTH)
    seen: dict[str, tuple[str, int]] = {}

    def note(message: Message) -> None:
        for tag, frame in decode_tagged(message.data):
            seen[frame.request] = message.subject, tag

    await bus.subscribe(frames_subject("*"), note)
    async with asyncio.TaskGroup() as group:
        group.create_task(stream.run())
        for heard in range(1, 200, 20):
            await eventually(lambda least=heard: len(stream.tokens) >= least and stream.id in seen)
            for first in (LENGTH, 0):
                frame = Frame(stream.id, first, [7], ["?"], [""])
                subject, tag = seen[stream.id]
                (batch,) = encode_tagged([(tag, encode_frame(frame))])
                bus.publish(subject, batch)
    assert stream.tokens == expected[0].tokens
    assert stream.finish == "length"


async def test_streams_of_a_verifier_that_drains_go_on_at_another_before_they_end(
    mesh: Stack, expected: list[Streamed]
) -> None:
    draining = await asyncio.to_thread(_verifier, mesh, "draining")
    counted = mesh.processes[0].log.read_text().count("a stream lost its verifier")

    def drain() -> None:
        draining.terminate()
        assert draining.wait() == 0

    seen = await _all(mesh, drain)
    _agree(seen, expected)
    assert "draining" not in {stream.last["verifier"] for stream in seen}
    assert "other verifiers go on with the requests" in draining.log.read_text()
    assert mesh.processes[0].log.read_text().count("a stream lost its verifier") > counted


async def test_streams_of_a_killed_verifier_go_on_at_another(mesh: Stack, expected: list[Streamed]) -> None:
    killed = await asyncio.to_thread(_verifier, mesh, "killed")
    seen = await _all(mesh, killed.kill)
    _agree(seen, expected)
    assert "killed" not in {stream.last["verifier"] for stream in seen}
    assert [stream.last["steps"] for stream in seen] == [LENGTH] * len(seen)


async def test_streams_wait_for_a_verifier_when_none_is_left(mesh: Stack, expected: list[Streamed]) -> None:
    def replace() -> None:
        for process in mesh.processes:
            if process.kind == "verifier" and process.alive:
                process.kill()
        _verifier(mesh, "replacement")

    seen = await _all(mesh, replace)
    _agree(seen, expected)
    assert {stream.last["verifier"] for stream in seen} == {"replacement"}


async def test_a_request_waits_for_a_tokenizer_that_takes_the_place_of_a_killed_one(
    mesh: Stack, expected: list[Streamed]
) -> None:
    def replace() -> None:
        for process in mesh.processes:
            if process.kind == "tokenizer" and process.alive:
                process.kill()
        mesh.add_model("tokenizer")

    await asyncio.to_thread(replace)
    fresh = Streamed(mesh.url, prompt="def f0(", seed=0, max_tokens=LENGTH)
    await fresh.run()
    assert fresh.tokens == expected[0].tokens


async def test_a_gateway_ends_its_streams_before_it_stops(mesh: Stack, expected: list[Streamed]) -> None:
    port = hold_port()
    gateway = mesh.add("gateway", port=port, leave_s=5)
    await asyncio.to_thread(gateway.wait_ready)
    url = f"http://127.0.0.1:{port}"
    await eventually(lambda: httpx.get(f"{url}/readyz").status_code == 200)

    def leave() -> None:
        gateway.terminate()
        while (told := httpx.get(f"{url}/readyz")).status_code == 200:
            time.sleep(0.02)
        first = told.headers["date"]
        while told.headers["date"] == first:  # uvicorn makes its headers anew each second
            time.sleep(0.02)
            told = httpx.get(f"{url}/readyz")
        assert (told.status_code, told.headers["connection"]) == (503, "close")
        assert "about to end" in told.json()["error"]["message"]

    seen = await _all(mesh, leave, url)
    _agree(seen, expected)
    assert await asyncio.to_thread(gateway.wait) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_gateway_alone_is_alive_and_not_ready(tmp_path: Path) -> None:
    with stack(tmp_path, tmp_path) as alone:
        alone.add("gateway", port=alone.port).wait_ready()
        refused = httpx.get(f"{alone.url}/readyz")
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        assert httpx.get(f"{alone.url}/healthz").status_code == 200
        answer = httpx.post(f"{alone.url}/v1/completions", json={"model": MODEL, "prompt": "p"})
        assert answer.status_code == 503
        assert answer.json()["error"]["message"] == "no service is ready for the model toy"
        assert httpx.get(f"{alone.url}/v1/models").json() == {"data": [], "object": "list"}


def test_a_port_in_use_is_told_in_one_sentence(shared_nats: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, log = taken.getsockname()[1], tmp_path / "log"
        with running("gateway", log, nats_url=shared_nats, port=port, log_level="error") as gateway:
            assert gateway.wait() == 3
    assert log.read_text() == f"outrider gateway: cannot listen on 127.0.0.1:{port}: Address already in use\n"


def _verifier(mesh: Stack, name: str) -> ServiceProcess:
    """One more verifier, once the gateway knows that it is ready."""
    process, gateway = mesh.add_model("verifier", instance=name), mesh.processes[0]
    process.wait_ready()
    while f'"member": "{name}", "state": "ready"' not in gateway.log.read_text():
        assert gateway.alive
        time.sleep(0.05)
    return process
