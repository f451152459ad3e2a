"""A small mesh of real processes behind a gateway."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from httpx_sse import EventSource, ServerSentEvent
from outrider.cli.bus.directory import BusDirectory
from outrider.mesh.addresses import hold_port

from tests.engine.text.makers import CHATML, byte_level, write
from tests.latch import Latch
from tests.processes import ServiceProcess
from tests.toy_model import save_toy
from tests.users import open_broker

MODEL = "toy"
BEGINNING = "def f("
CONTEXT = 4096
RUNNING, WAITING = 2, 3
"""Requests that the shared verifier runs at once, and those that may wait."""
_READY_S = 240.0


def save_model(directory: Path, kv_heads: int = 1) -> Path:
    """Saves a toy target with a byte-level vocabulary."""
    made = byte_level()
    save_toy(directory, made.get_vocab_size(), context=CONTEXT, kv_heads=kv_heads)
    config = json.loads((directory / "config.json").read_text()) | {"eos_token_id": 0}
    write(directory, made, chat_template=CHATML)
    (directory / "config.json").write_text(json.dumps(config))
    return directory


class Stack:
    """Processes on one broker; `stop` ends those that are alive, and fails if the broker forbade one of them anything.

    Services have their own users and rights; tests have all rights.

    Attributes:
        latch: Halts requests after a number of tokens.
        common: Settings of every process.
        scheme: Of the gateway's URL.
    """

    def __init__(self, directory: Path, logs: Path, *, stores: bool = False) -> None:
        self.directory, self.logs = directory, logs
        self.users = BusDirectory(logs / "bus")
        self.broker = open_broker(self.users, *(("--jetstream", "--store_dir", str(logs / "nats")) if stores else ()))
        self.processes: list[ServiceProcess] = []
        self.port, self.grpc_port = hold_port(), hold_port()
        self.latch = Latch(logs / "latch")
        self.common: dict[str, Any] = {}
        self.scheme = "http"

    @property
    def grpc(self) -> str:
        """The gateway's address for gRPC."""
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def url(self) -> str:
        """The gateway's URL."""
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def add(self, kind: str, **settings: Any) -> ServiceProcess:
        """Starts one more process."""
        log = self.logs / f"{kind}-{len(self.processes)}.log"
        settings = {"nats_credentials": self.users.path} | self.common | settings
        process = ServiceProcess(kind, log, nats_url=self.broker.url, **settings)
        process.start()
        self.processes.append(process)
        return process

    def add_model(self, kind: str, **settings: Any) -> ServiceProcess:
        """Starts a tokenizer or verifier of the model; verifiers have no drafters unless ``settings`` name some."""
        if kind == "verifier":
            settings = {"drafters": "[]", "latch": self.latch} | settings
        return self.add(kind, model=self.directory, served_name=MODEL, **settings)

    def wait_ready(self) -> None:
        """Returns when a completion would succeed."""
        deadline = time.monotonic() + _READY_S
        while not self.ready():
            self.check()
            assert time.monotonic() < deadline, "the gateway did not become ready"
            time.sleep(0.1)

    def check(self) -> None:
        """Fails if a process has ended by itself, and shows the end of its log."""
        for process in self.processes:
            process.check()

    def ready(self) -> bool:
        """Whether /readyz answers 200."""
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def stop(self) -> None:
        """Ends everything."""
        for process in reversed(self.processes):
            process.stop()
        self.broker.kill()
        assert not self.forbidden()

    def forbidden(self) -> set[str]:
        """Log lines of services about operations that the broker forbids."""
        lines = {line for log in self.logs.glob("*.log") for line in log.read_text().splitlines()}
        return {line for line in lines if "the broker forbids this" in line}


@contextmanager
def stack(directory: Path, logs: Path, *, stores: bool = False) -> Iterator[Stack]:
    """A stack with a broker and no services; the broker has JetStream if it ``stores``."""
    made = Stack(directory, logs, stores=stores)
    made.broker.start()
    try:
        yield made
    finally:
        made.stop()


async def events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The JSON events of a stream; it must end with [DONE]."""
    event = ServerSentEvent()
    async for event in EventSource(response).aiter_sse():
        if event.data != "[DONE]":
            yield event.json()
    assert event.data == "[DONE]"
    assert event.id


class Streamed:
    """One streamed completion."""

    def __init__(self, url: str, **body: Any) -> None:
        self._url = url
        self.body = {"model": MODEL, "stream": True, "return_tokens": True, "ignore_eos": True, **body}
        self.tokens: list[int] = []
        self.logprobs: list[float | None] = []
        self.text = ""
        self.finish: str | None = None
        self.last: dict[str, Any] = {}
        self.usage: dict[str, Any] = {}
        self.id = ""
        self.headers: dict[str, str] = {}

    async def run(self) -> None:
        """Reads to the end; fails on a token that is repeated, missing or out of order, and on an error frame."""
        body = self.body | {"stream_options": {"include_usage": True}}
        async with (
            httpx.AsyncClient(timeout=240, headers=self.headers) as client,
            client.stream("POST", f"{self._url}/v1/completions", json=body) as response,
        ):
            assert response.status_code == 200, await response.aread()
            self.id = response.headers["x-request-id"]
            async for event in events(response):
                self._take(event)

    def _take(self, event: dict[str, Any]) -> None:
        assert "error" not in event, event
        self.last = event["outrider"]
        if event["choices"]:
            self._first = self.last["first_index"] if not self.tokens else self._first
            assert self.last["first_index"] - self._first == len(self.tokens)
            self.tokens += self.last["tokens"]
            self.text += event["choices"][0]["text"]
            self.logprobs += (event["choices"][0]["logprobs"] or {"token_logprobs": []})["token_logprobs"]
            self.finish = event["choices"][0]["finish_reason"]
        else:
            self.usage = event["usage"]
