"""Checks of every HTTP request: content type, JSON, key and method."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from outrider.gateway.api.http.messages import DEPTH, require_plain
from outrider.mesh.errors import InvalidRequest

from tests.gateway.stack import CONTEXT, MODEL, Stack
from tests.gateway.tenants import TenantStore

BODY = {"model": MODEL, "prompt": "def f(", "max_tokens": 2}
CHAT: Any = [{"role": "user", "content": "def f("}]
JSON = {"content-type": "application/json"}


@pytest.fixture
def http(shared: Stack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shared.url, timeout=60) as made:
        yield made


def nested(levels: int, pair: str = "[]") -> str:
    """JSON with this number of levels."""
    opening = pair[0] if pair == "[]" else '{"a":'
    return opening * levels + ("" if pair == "[]" else "1") + pair[1] * levels


def error(answer: httpx.Response) -> dict[str, Any]:
    return dict(answer.json()["error"])


DEEP = {
    "completions": '{"prompt": %s}',
    "chat/completions": '{"messages": [{"role": "user", "content": "a", "x": %s}], "max_tokens": 2}',
    "responses": '{"input": "a", "text": {"format": {"type": "json_schema", "name": "a", "schema": {"x": %s}}}}',
    "tokenize": '{"messages": [{"role": "user", "content": "a", "x": %s}]}',
    "detokenize": '{"tokens": %s}',
    "responses/input_tokens": '{"input": "a", "metadata": %s}',
}


@pytest.mark.parametrize("levels", [DEPTH, 900, 1000, 100_000])
@pytest.mark.parametrize("pair", ["[]", "{}"])
@pytest.mark.parametrize("path", DEEP)
def test_json_that_nests_too_deep_is_refused_with_the_depth_that_is_allowed(
    http: httpx.Client, path: str, pair: str, levels: int
) -> None:
    answer = http.post(f"/v1/{path}", content=DEEP[path] % nested(levels, pair), headers=JSON)
    assert answer.status_code == 400
    assert f"deeper than {DEPTH} levels" in error(answer)["message"]


def test_json_that_is_only_opened_is_refused_as_well(http: httpx.Client) -> None:
    for content in ("[" * 5000, '{"a":' * 5000, '{"prompt": ' + "[" * 5000):
        answer = http.post("/v1/completions", content=content, headers=JSON)
        assert (answer.status_code, "deeper than" in error(answer)["message"]) == (400, True)


def test_what_is_as_deep_as_may_be_is_read(http: httpx.Client) -> None:
    body = DEEP["tokenize"] % nested(DEPTH - 3)
    assert http.post("/v1/tokenize", content=body, headers=JSON).status_code == 200


_VALUES = st.recursive(
    st.none() | st.text('[]{}"\\,:ab', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[]{}"\\', max_size=4), inner, max_size=3),
    max_leaves=30,
)


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (1 if isinstance(value, (dict, list)) else 0) + max(map(_depth, inner), default=0)


@given(_VALUES, st.integers(DEPTH - 6, DEPTH))
def test_the_depth_is_told_whatever_strings_hold(value: Any, outer: int) -> None:
    levels = outer + _depth(value)
    text = f"[{json.dumps(DEPTH * '[')}, " + "[" * (outer - 1) + json.dumps(value) + "]" * outer
    if levels <= DEPTH:
        require_plain(text.encode())
    else:
        with pytest.raises(InvalidRequest, match="deeper than"):
            require_plain(text.encode())


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ('{"prompt": "a", "max_tokens": 2, "prompt": "b"}', "prompt"),
        ('{"seed": 1, "prompt": "a", "max_tokens": 2, "seed":1}', "seed"),
        ('{"prompt": "a", "m\\u0061x_tokens": 2, "max_tokens": 3}', "max_tokens"),
    ],
)
def test_a_parameter_that_is_given_twice_is_named(http: httpx.Client, body: str, name: str) -> None:
    answer = http.post("/v1/completions", content=body, headers=JSON)
    assert (answer.status_code, error(answer)["param"]) == (400, name)
    assert "twice" in error(answer)["message"]


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON;charset=UTF-8",
        "application/vnd.api+json",
    ],
)
def test_bodies_of_json_are_taken(http: httpx.Client, kind: str) -> None:
    answer = http.post("/v1/completions", content=json.dumps(BODY), headers={"content-type": kind})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "text/plain; application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=application/json",
        "",
        None,
    ],
)
@pytest.mark.parametrize(
    "path", ["/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/tokenize", "/detokenize"]
)
def test_what_a_web_page_may_send_without_asking_is_refused(http: httpx.Client, path: str, kind: str | None) -> None:
    headers = {} if kind is None else {"content-type": kind}
    answer = http.post(path, content=json.dumps(BODY), headers=headers)
    assert answer.status_code == 415
    assert "Content-Type: application/json" in error(answer)["message"]
    assert (kind or "missing") in error(answer)["message"]


def test_two_types_are_refused_and_no_body_needs_none(http: httpx.Client) -> None:
    twice = [("content-type", "text/plain"), ("content-type", "application/json")]
    assert http.post("/v1/completions", content=json.dumps(BODY), headers=twice).status_code == 415
    assert http.post("/v1/completions").status_code == 400


@pytest.mark.parametrize("name", ["authorization", "x-api-key"])
async def test_two_keys_are_refused(shared: Stack, urls: list[str], tenant_store: TenantStore, name: str) -> None:
    _, key = await tenant_store.key()
    given = f"Bearer {key}" if name == "authorization" else key
    async with httpx.AsyncClient(timeout=60) as http:
        for url in (shared.url, urls[0]):
            assert (await http.get(f"{url}/v1/models", headers=[(name, given)])).status_code == 200
            answer = await http.get(f"{url}/v1/models", headers=[(name, given), (name, "Bearer sk-other")])
            assert (answer.status_code, error(answer)["param"]) == (400, name)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/completions", "POST"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("POST", "/v1/streams/some", "DELETE, GET, HEAD"),
        ("PATCH", "/v1/prompts/some", "DELETE, GET, HEAD, PUT"),
        ("OPTIONS", "/v1/chat/completions", "POST"),
        ("DELETE", "/healthz", "GET, HEAD"),
        ("PUT", "/ping", "GET, HEAD, POST"),
    ],
)
def test_a_wrong_method_is_told_all_right_ones(http: httpx.Client, method: str, path: str, allowed: str) -> None:
    answer = http.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert allowed in error(answer)["message"]


def test_what_clients_of_vllm_ask_is_there(http: httpx.Client) -> None:
    assert http.get("/version").json() == {"version": version("outrider")}
    for ready in (http.get("/health"), http.get("/ping"), http.post("/ping")):
        assert (ready.status_code, ready.json()["models"]) == (200, [MODEL])
    assert [model["max_model_len"] for model in http.get("/v1/models").json()["data"]] == [CONTEXT]
    model = http.get(f"/v1/models/{MODEL}").json()
    assert (model["max_model_len"], model["outrider"]) == (CONTEXT, {"end_token_ids": [0, 2]})
    told = http.post("/tokenize", json={"model": MODEL, "messages": CHAT})
    assert told.json() == http.post("/v1/tokenize", json={"model": MODEL, "messages": CHAT}).json()
    text = http.post("/detokenize", json={"tokens": told.json()["tokens"]})
    assert text.json() == http.post("/v1/detokenize", json={"tokens": told.json()["tokens"]}).json()


async def test_paths_without_v1_need_a_key_as_well(urls: list[str], tenant_store: TenantStore) -> None:
    _, key = await tenant_store.key()
    async with httpx.AsyncClient(base_url=urls[0], timeout=60) as http:
        for path, body in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [5]})):
            assert (await http.post(path, json=body)).status_code == 401
            asked = await http.post(path, json=body, headers={"authorization": f"Bearer {key}"})
            assert asked.status_code == 200
        for path in ("/health", "/ping", "/version"):
            assert (await http.get(path)).status_code == 200
