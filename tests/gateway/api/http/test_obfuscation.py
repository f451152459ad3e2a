"""Streams of a mesh whose sizes and times tell nothing, for a request and for a tenant."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from openai._streaming import SSEDecoder
from outrider.gateway.settings import GatewaySettings
from outrider.wire.tenants import Limits

from tests.gateway.stack import MODEL, Stack
from tests.gateway.tenants import TenantStore

pytestmark = pytest.mark.timeout(300)  # whichever test comes first waits for a mesh to start

SIZE, MULTIPLE = GatewaySettings().obfuscation_bytes, GatewaySettings().obfuscation_cells
SAID = [{"role": "user", "content": "def f("}]
FIXED = {"model": MODEL, "seed": 7, "ignore_eos": True, "stream": True}
OPENAI: dict[str, dict[str, Any]] = {
    "/v1/completions": FIXED | {"prompt": "def f(", "max_tokens": 40},
    "/v1/chat/completions": FIXED | {"messages": SAID, "max_tokens": 40},
    "/v1/responses": FIXED | {"input": "def f(", "max_output_tokens": 40},
}
MESSAGES = FIXED | {"messages": SAID, "max_tokens": 40}
EVERY = OPENAI | {"/v1/messages": MESSAGES}


class Stream:
    """A whole stream: the sizes of its HTTP chunks, and the data of its events."""

    def __init__(self, url: str, path: str, body: dict[str, Any], key: str = "") -> None:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        with httpx.stream("POST", url + path, json=body, headers=headers, timeout=240) as response:
            self.data, self.id = b"".join(response.iter_raw()), response.headers["x-request-id"]
        assert response.status_code == 200
        events = SSEDecoder().iter_bytes(iter([self.data]))
        self.events = [json.loads(event.data) for event in events if event.data != "[DONE]"]

    @property
    def text(self) -> str:
        """What was said."""
        return "".join(map(_text, self.events))

    def require_cells(self) -> None:
        """Fails unless the stream is as many cells as all such streams."""
        assert len(self.data) % (SIZE * MULTIPLE) == 0


def _text(event: dict[str, Any]) -> str:
    for choice in event.get("choices", []):
        return str(choice.get("text") or choice.get("delta", {}).get("content") or "")
    delta = event.get("delta", "")
    return str(delta.get("text", "") if isinstance(delta, dict) else delta)


@pytest.mark.parametrize("path", OPENAI)
def test_a_stream_says_the_same_in_cells_of_one_size(shared: Stack, path: str) -> None:
    plain = Stream(shared.url, path, OPENAI[path])
    asked = Stream(shared.url, path, OPENAI[path] | {"stream_options": {"include_obfuscation": True}})
    asked.require_cells()
    assert asked.text == plain.text
    assert len(plain.text) > 20
    assert len(plain.data) % SIZE
    assert any("obfuscation" in event for event in asked.events)
    assert not any("obfuscation" in event for event in plain.events)
    if path != "/v1/responses":  # whose first and last events are larger than a cell
        sizes = {sum(len(line) + 1 for line in each if not _is_idle(line)) for each in _pieces(asked.data)}
        assert sizes == {SIZE - 1}


def _pieces(data: bytes) -> list[list[bytes]]:
    """The lines of each event, with the comments in front of it and without its blank line."""
    return [event.split(b"\n") for event in data.split(b"\n\n")[:-1]]


def _is_idle(line: bytes) -> bool:
    """Whether a line is a cell without events."""
    return line.startswith(b":") and len(line) + 1 == SIZE


def test_a_resumed_stream_is_obfuscated_as_well(shared: Stack) -> None:
    path = "/v1/completions"
    begun = Stream(shared.url, path, OPENAI[path] | {"stream_options": {"include_obfuscation": True}})
    with httpx.stream("GET", f"{shared.url}/v1/streams/{begun.id}", timeout=240) as response:
        data = response.read()
    assert len(data) % (SIZE * MULTIPLE) == 0


@pytest.mark.parametrize("on", ["tenant", "key"])
async def test_a_tenant_or_a_key_has_all_its_streams_obfuscated(
    shared: Stack, urls: list[str], tenant_store: TenantStore, on: str
) -> None:
    limits = Limits(obfuscation=True)
    _, key = await tenant_store.key(*((limits, None) if on == "tenant" else (Limits(obfuscation=False), limits)))
    for path, body in EVERY.items():
        stream = Stream(urls[0], path, body, key)
        stream.require_cells()
        assert stream.text
    body = {"model": MODEL, "messages": SAID, "options": {"num_predict": 4}}
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=240) as client:
        refused = await client.post(f"{urls[0]}/api/chat", json=body)
        whole = await client.post(f"{urls[0]}/api/chat", json=body | {"stream": False})
    assert refused.status_code == 400
    assert refused.json()["error"] == "stream must be false: lines of JSON are not obfuscated"
    assert whole.json()["done"]
