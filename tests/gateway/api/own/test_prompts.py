"""Named prompts: stored by any API, computed by every verifier, and found by requests that begin with them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from outrider.mesh.bus import Bucket, Bus
from outrider.wire.prompts import BUCKET, NamedPrompt, prompt_entry, prompt_mark

from tests.gateway.stack import MODEL, Stack, stack
from tests.reading import reading
from tests.waiting import eventually

TEXT = "You are a patient teacher of arithmetic.\n" * 4
PAGE = 16


@pytest.fixture(scope="module")
def site(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with stack(directory, tmp_path_factory.mktemp("logs"), stores=True) as made:
        made.add("gateway", port=made.port, grpc_port=made.grpc_port, nats_door="false")
        made.add_model("tokenizer")
        made.add_model("verifier", instance="first", pages=64)
        made.wait_ready()
        yield made


def call(site: Stack, method: str, path: str = "", **body: Any) -> httpx.Response:
    return httpx.request(method, f"{site.url}/v1/prompts{path}", json=body or None, timeout=30)


def full(site: Stack, prompt: str) -> int:
    """Tokens of a prompt's full pages."""
    told = httpx.post(f"{site.url}/v1/tokenize", json={"prompt": prompt}).json()
    assert told["count"] > PAGE
    return int(told["count"]) // PAGE * PAGE


def warm(site: Stack, name: str, verifiers: int) -> dict[str, Any]:
    """The stored prompt, once this number of verifiers keep it computed."""
    deadline = time.monotonic() + 90
    while True:
        told = dict(call(site, "GET", f"/{name}").json())
        if told["warm"] == told["verifiers"] == verifiers:
            return told
        assert time.monotonic() < deadline, told
        time.sleep(0.05)


def complete(site: Stack, prompt: str) -> tuple[str, int]:
    """The answer, and the number of the prompt's tokens that were cached."""
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 8, "seed": 1, "ignore_eos": True, "coalesce": False}
    answer = httpx.post(f"{site.url}/v1/completions", json=body, timeout=60).json()
    return answer["choices"][0]["text"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_a_named_prompt_is_computed_before_anybody_asks_and_outlives_pressure(site: Stack) -> None:
    fresh, _ = complete(site, "x" + TEXT)
    assert call(site, "PUT", "/teacher", prompt=TEXT).json()["warm"] == 0
    assert warm(site, "teacher", 1)["prompt"] == TEXT
    expected, found = complete(site, TEXT + "2+2")
    assert found == full(site, TEXT)
    for number in range(6):
        complete(site, str(number) * 500)
    assert complete(site, TEXT + "2+2") == (expected, found)
    assert complete(site, "x" + TEXT)[0] == fresh


async def test_prompts_of_one_tenant_leave_room_for_those_of_others(site: Stack) -> None:
    pages = 64 // 2 // 2  # of the pages a half may be pinned, and a half of those by one tenant
    text = "To all who ask: count from one to nine, and back again. "
    while full(site, text) // PAGE <= pages // 2:
        text += text[:56]
    call(site, "DELETE", "/teacher")
    for name in ("one", "two"):
        call(site, "PUT", f"/{name}", prompt=f"{name} {text}")
    mine = NamedPrompt(name="third", tenant="other", created=time.time(), text=text)
    async with reading(site.broker.url) as registry:
        bus = Bus()
        await bus.connect(site.broker.url, "test", wait_s=10)
        revision = await Bucket(bus, BUCKET).put(prompt_entry("other", "third"), msgspec.json.encode(mine))
        mark = prompt_mark("other", "third", revision)
        await eventually(lambda: any(mark in each.status["pinned"] for each in registry.members("verifier")))
        await Bucket(bus, BUCKET).wipe(prompt_entry("other", "third"))
        await bus.close()
    assert [call(site, "GET", f"/{name}").json()["warm"] for name in ("one", "two")] == [1, 0]
    for name in ("one", "two"):
        call(site, "DELETE", f"/{name}")


def test_a_verifier_that_starts_later_computes_it_too(site: Stack) -> None:
    call(site, "PUT", "/teacher", prompt=TEXT)
    site.add_model("verifier", instance="late", pages=64)
    warm(site, "teacher", 2)
    next(process for process in site.processes if process.settings.get("instance") == "first").kill()
    warm(site, "teacher", 1)
    assert complete(site, TEXT + "3+3")[1] == full(site, TEXT)


def test_a_prompt_that_is_changed_or_deleted_is_kept_no_more(site: Stack) -> None:
    call(site, "PUT", "/teacher", prompt=TEXT)
    call(site, "PUT", "/teacher", prompt="z" + TEXT)
    warm(site, "teacher", 1)
    assert complete(site, "z" + TEXT + "1")[1] == full(site, "z" + TEXT)
    names = [each["name"] for each in call(site, "GET").json()["data"]]
    assert names == ["teacher"]
    assert call(site, "DELETE", "/teacher").status_code == 204
    assert call(site, "GET", "/teacher").status_code == 404
    assert call(site, "DELETE", "/teacher").status_code == 404


def test_what_finds_no_room_is_left_out_and_keeps_nobody_else_out(site: Stack) -> None:
    call(site, "PUT", "/long", prompt="".join(f"{number} " for number in range(1000)))
    call(site, "PUT", "/teacher", prompt=TEXT)
    warm(site, "teacher", 1)
    assert call(site, "GET", "/long").json()["warm"] == 0
    assert (call(site, "DELETE", "/long").status_code, call(site, "DELETE", "/teacher").status_code) == (204, 204)


def test_messages_are_rendered_by_the_models_template(site: Stack) -> None:
    system = {"role": "system", "content": TEXT}
    assert call(site, "PUT", "/system", messages=[system], model=MODEL).status_code == 200
    told = warm(site, "system", 1)
    assert (told["messages"], told["model"]) == ([system], MODEL)
    body = {"messages": [system, {"role": "user", "content": "2+2"}], "max_tokens": 2}
    usage = httpx.post(f"{site.url}/v1/chat/completions", json=body, timeout=60).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= full(site, TEXT)
    call(site, "DELETE", "/system")


@pytest.mark.parametrize(
    ("path", "body", "status", "sentence"),
    [
        ("/a.b", {"prompt": "x"}, 400, "the name of a prompt is 1 to 64 letters"),
        ("/a", {"prompt": "x", "messages": [{"role": "user", "content": ""}]}, 400, "either prompt or messages"),
        ("/a", {"model": MODEL}, 400, "either prompt or messages"),
        ("/a", {"prompt": "x" * 300_000}, 413, "at most 262144 are kept"),
        ("/a", {"prompt": "x", "model": "other"}, 404, "does not exist"),
        ("/a", {"messages": [{"content": "x"}]}, 400, "messages[0].role"),
        ("/a", {"text": "x"}, 400, "either prompt or messages"),
    ],
)
def test_what_is_no_prompt_is_refused(site: Stack, path: str, body: dict[str, Any], status: int, sentence: str) -> None:
    refused = call(site, "PUT", path, **body)
    assert refused.status_code == status
    assert sentence in refused.json()["error"]["message"]


def test_a_tenant_has_so_many_prompts_and_no_more(site: Stack) -> None:
    for number in range(64):
        assert call(site, "PUT", f"/p{number}", prompt="x").status_code == 200
    refused = call(site, "PUT", "/p64", prompt="x")
    assert (refused.status_code, call(site, "PUT", "/p0", prompt="y").status_code) == (400, 200)
    assert "there are 64 prompts already" in refused.json()["error"]["message"]
