"""The modules of the gateway that a streamed chat with a key crosses: what a request does not use costs no call."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from types import FrameType
from typing import Any

import httpx
import pytest
from outrider.gateway.service import GatewayService
from outrider.gateway.settings import GatewaySettings
from outrider.mesh.bus import Bucket, Bus
from outrider.mesh.rpc import close_channels
from outrider.wire.tenants import BUCKET

from tests.gateway.in_process import serving
from tests.gateway.stack import MODEL, Stack
from tests.gateway.tenants import TenantStore

MOST = 40
UNUSED = {
    "admission.deadlines",
    "admission.limit_store",
    "api.http.cells",
    "api.openai.thoughts",
    "api.schema.logprobs",
    "api.schema.structure",
    "api.schema.thinking",
    "api.schema.tools",
    "filters.installed",
    "observer.span",
    "request.filtering",
    "routing.refused_jobs",
    "schemas.parameters",
    "stream.coalesced",
    "stream.filtered",
    "stream.pool",
    "stream.verifier_deaths",
    "tool_calls.answer_reader",
    "tool_calls.grammar",
}
"""Modules of what is not in the request: a deadline, limits, filters, a structure, calls, a trace, thoughts, a twin."""
_PACKAGE = "/outrider/gateway/"


class Asking:
    """Asks a gateway of this process."""

    def __init__(self, url: str, key: str) -> None:
        self._url, self._headers = f"{url}/v1/chat/completions", {"authorization": f"Bearer {key}"}

    async def crossed(self, http: httpx.AsyncClient, text: str, **more: Any) -> set[str]:
        """The modules in which anything is called while a streamed chat is answered."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 16, "stream": True}
        crossed: set[str] = set()

        def note(frame: FrameType, event: str, argument: object) -> None:
            if event == "call" and _PACKAGE in (path := frame.f_code.co_filename):
                crossed.add(path.partition(_PACKAGE)[2].removesuffix(".py").replace("/", "."))

        sys.setprofile(note)
        try:
            answer = await http.post(self._url, json=body | more, headers=self._headers)
        finally:
            sys.setprofile(None)
        assert answer.status_code == 200
        assert answer.text.endswith(":done\n\n")
        return crossed


@pytest.fixture
async def asking(shared: Stack) -> AsyncIterator[Asking]:
    bus = Bus()
    await bus.connect(shared.broker.url, "test", wait_s=10)
    settings = GatewaySettings(port=0, auth="keys", nats_door=False, lease_s=3600, nats_url=shared.broker.url)
    async with serving(GatewayService, settings) as registry:
        _, key = await TenantStore(Bucket(bus, BUCKET)).key()
        members = await registry.wait_for("gateway", lambda all_: any(m.instance == "gateway-here" for m in all_), 60)
        (port,) = (member.status["http_port"] for member in members if member.instance == "gateway-here")
        for kind in ("verifier", "tokenizer"):
            await registry.wait_for(kind, bool, 60)
        yield Asking(f"http://127.0.0.1:{port}", key)
    await close_channels()
    await bus.close()


async def test_what_a_request_does_not_use_is_not_called(asking: Asking) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        await asking.crossed(http, "first")
        each = [await asking.crossed(http, f"again {number}") for number in range(5)]
        crossed = set.intersection(*each)  # what happens once in a while is not the request's
        assert not crossed & UNUSED
        assert len(crossed) <= MOST, "\n".join(sorted(crossed))
        used = await asking.crossed(http, "used", timeout_ms=60_000, seed=3, tools=[], response_format={"type": "text"})
        assert {"admission.deadlines", "api.schema.structure"} <= used
