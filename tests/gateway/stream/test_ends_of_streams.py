"""What ends a stream that cannot go on: each API's own event, so that its clients know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx_sse import EventSource
from outrider.gateway.api.openai.answers import AnswerWriter
from outrider.gateway.api.responses.output import Output
from outrider.gateway.service import GatewayService
from outrider.gateway.settings import GatewaySettings
from outrider.mesh.addresses import hold_port
from outrider.mesh.rpc import close_channels
from outrider.wire.frames import Frame

from tests.gateway.in_process import serving
from tests.gateway.stack import MODEL, Stack, stack
from tests.latch import FEW
from tests.processes import ServiceProcess
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(300)
SAID: Any = {"messages": [{"role": "user", "content": "def f("}]}
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "kept response": ("/v1/responses", {"input": "def f("}),
    "response": ("/v1/responses", {"input": "def f(", "store": False}),
    "message": ("/v1/messages", SAID | {"max_tokens": 900}),
    "chat": ("/v1/chat/completions", SAID),
    "completion": ("/v1/completions", {"prompt": "def f(", "max_tokens": 900}),
}
WAITS: Any = {"place_s": 1, "resume_s": 1, "silence_s": 0.5, "keepalive_s": 0.2}


@pytest.fixture(scope="module")
def mesh(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One verifier, and a gateway that does not wait long for another."""
    with stack(directory, tmp_path_factory.mktemp("logs"), stores=True) as made:
        made.add("gateway", port=made.port, **WAITS)
        made.add_model("tokenizer")
        made.add_model("verifier")
        made.wait_ready()
        yield made


@pytest.fixture
def verifier(mesh: Stack) -> Iterator[ServiceProcess]:
    (process,) = [each for each in mesh.processes if each.kind == "verifier"]
    yield process
    if not process.alive:
        process.start()
        process.wait_ready()
    mesh.wait_ready()


class Told:
    """The events of one stream, which must end by the server."""

    def __init__(self, url: str, name: str, **more: Any) -> None:
        self._url, (self._path, body) = url, ASKED[name]
        self._body = {"model": MODEL, "stream": True, "ignore_eos": True, "seed": 7} | body | more
        self.name, self.events = name, list[dict[str, Any]]()
        self.done = False

    async def read(self) -> Told:
        async with (
            httpx.AsyncClient(timeout=60) as client,
            client.stream("POST", self._url + self._path, json=self._body) as response,
        ):
            assert response.status_code == 200, await response.aread()
            async for event in EventSource(response).aiter_sse():
                assert not self.done
                self.done = event.data == "[DONE]"
                if not self.done:
                    self.events.append(event.json())
        return self

    def check(self, expected: str, code: str | None = None) -> None:
        """The last events say ``expected``, a part of a message, as the API has it."""
        last = self.events[-1]
        assert "error" in last.get("response", last), (self.name, self.events[-3:])
        message = last["response"]["error"]["message"] if "response" in last else last["error"]["message"]
        assert expected in message
        if self.name.endswith("response"):
            error, _ = self.events[-2:]
            assert (error["type"], error["message"]) == ("error", message)
            assert error["code"] == code or code is None
            assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
            assert last["response"]["error"] == {"code": "server_error", "message": message}
            assert last["sequence_number"] == error["sequence_number"] == max(0, len(self.events) - 3)
            assert last["response"]["model"] == MODEL
        elif self.name == "message":
            assert last["type"] == "error"
        else:
            assert self.done


async def _reading(url: str, **more: Any) -> AsyncIterator[list[Told]]:
    """Streams of all APIs that have begun; then their ends."""
    told = [Told(url, name, **more) for name in ASKED]
    reading = asyncio.gather(*(each.read() for each in told))
    await eventually(lambda: reading.done() or all(len(each.events) > 6 for each in told))
    yield told
    await reading
    yield told


async def test_a_lost_engine_is_told(mesh: Stack, verifier: ServiceProcess) -> None:
    with mesh.latch.at(FEW):
        streams = _reading(mesh.url)
        await anext(streams)
        await asyncio.to_thread(verifier.kill)
        for told in await anext(streams):
            told.check("the stream could not be resumed")


@pytest.mark.parametrize("name", ASKED)
async def test_an_answer_that_cannot_begin_is_told_where_the_stream_has_begun(
    mesh: Stack, verifier: ServiceProcess, name: str
) -> None:
    if verifier.alive:
        await asyncio.to_thread(verifier.kill)
    (await Told(mesh.url, name).read()).check("")


@pytest.mark.usefixtures("verifier")
async def test_a_passed_deadline_is_told(mesh: Stack) -> None:
    with mesh.latch.at(FEW):
        streams = _reading(mesh.url, timeout_ms=2500)
        await anext(streams)
        for told in await anext(streams):
            told.check("the answer did not end within timeout_ms", "deadline_exceeded")


@pytest.mark.usefixtures("verifier")
async def test_a_gateway_that_is_told_to_go_says_so(mesh: Stack) -> None:
    port = hold_port()
    leaving = mesh.add("gateway", port=port, drain_s=0)
    await asyncio.to_thread(leaving.wait_ready)
    with mesh.latch.at(FEW):
        streams = _reading(f"http://127.0.0.1:{port}")
        await anext(streams)
        leaving.terminate()
        for told in await anext(streams):
            told.check("the gateway is shutting down")
    assert await asyncio.to_thread(leaving.wait) == 0


@pytest.mark.usefixtures("verifier")
async def test_a_fault_of_the_writer_is_told(mesh: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(method: Any) -> Any:
        def run(self: Any, frame: Frame, *more: Any, **named: Any) -> Any:
            if frame.first_index + len(frame.tokens) > FEW:
                raise ValueError("a fault")
            return method(self, frame, *more, **named)

        return run

    for kind, name in ((Output, "take"), (AnswerWriter, "chunk")):
        monkeypatch.setattr(kind, name, faulty(getattr(kind, name)))
    port = hold_port()
    async with serving(GatewayService, GatewaySettings(nats_url=mesh.broker.url, port=port)) as registry:
        for service in ("verifier", "tokenizer"):
            await registry.wait_for(service, bool, 60)
        most = {name: "max_output_tokens" if "response" in name else "max_tokens" for name in ASKED}
        streams = [Told(f"http://127.0.0.1:{port}", name, **{most[name]: 40}) for name in ASKED]
        for told in await asyncio.gather(*(each.read() for each in streams)):
            told.check("internal error")
    await close_channels()
