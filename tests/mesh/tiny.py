"""The smallest service: `python -m tests.mesh.tiny` for tests of a process's whole life."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Any, Literal

from msgspec import Meta
from outrider.mesh.bus import Message
from outrider.mesh.config import Settings
from outrider.mesh.errors import NotFound
from outrider.mesh.service import Mesh, Service, run
from outrider.mesh.telemetry import get_logger
from outrider.v1 import tokenizer_pb2 as pb
from outrider.v1 import tokenizer_pb2_grpc as rpc

_log = get_logger("tiny")


class TinySettings(Settings, frozen=True, kw_only=True):
    """How the tiny service misbehaves."""

    fault: Annotated[Literal["", "missing-model", "bug", "deaf"], Meta(description="what goes wrong")] = ""
    load_s: Annotated[float, Meta(ge=0, description="seconds that loading takes")] = 0.0
    work_s: Annotated[float, Meta(ge=0, description="seconds that work in flight takes")] = 0.0


class Tiny(Service, rpc.TokenizerServicer):
    """Answers Describe, reports on NATS when it has drained, and fails as its settings say."""

    kind = "tiny"
    settings = TinySettings

    def __init__(self, settings: TinySettings) -> None:
        self._settings = settings

    async def start(self, mesh: Mesh) -> None:
        self._mesh = mesh
        if self._settings.fault == "missing-model":
            raise NotFound("no model in /nowhere")
        if self._settings.fault == "bug":
            raise KeyError("bug")
        await asyncio.sleep(self._settings.load_s)
        self._model = "tiny"
        rpc.add_TokenizerServicer_to_server(self, mesh.rpc)
        await mesh.bus.subscribe("tiny.fault", self._break)

    def status(self) -> dict[str, Any]:
        return {"model": self._model}

    async def Describe(self, request: Any, context: Any) -> pb.DescribeTokenizerResponse:  # noqa: N802
        _log.info("working")
        while True:
            try:
                await asyncio.sleep(self._settings.work_s)
                break
            except asyncio.CancelledError:
                if self._settings.fault != "deaf":
                    raise
        return pb.DescribeTokenizerResponse(model=self._mesh.instance)

    async def drain(self) -> None:
        await asyncio.sleep(self._settings.work_s)
        self._mesh.bus.publish("tiny.drained", self._mesh.instance.encode())

    def _break(self, message: Message) -> None:
        if message.data == b"task":
            self._mesh.tasks.spawn(_die(), "doomed")
        else:
            threading.Thread(target=_die_at_once).start()


async def _die() -> None:
    raise RuntimeError("task")


def _die_at_once() -> None:
    raise RuntimeError("thread")


if __name__ == "__main__":
    run(Tiny)
