"""Each path of the gateway's HTTP API, asked with no key, with a false one, and with those of two tenants."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import httpx
import pytest
from outrider.wire.tenants import new_key

from tests.security.secured import Secured

WITH_KEY = {
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{model}"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/responses/input_tokens"),
    ("POST", "/v1/responses/compact"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/messages/count_tokens"),
    ("GET", "/v1/responses/{id}"),
    ("DELETE", "/v1/responses/{id}"),
    ("POST", "/v1/responses/{id}/cancel"),
    ("GET", "/v1/responses/{id}/input_items"),
    ("GET", "/v1/streams/{id}"),
    ("DELETE", "/v1/streams/{id}"),
    ("GET", "/v1/prompts"),
    ("GET", "/v1/prompts/{name}"),
    ("PUT", "/v1/prompts/{name}"),
    ("DELETE", "/v1/prompts/{name}"),
    ("POST", "/v1/tokenize"),
    ("POST", "/v1/detokenize"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/v1/tokenizer_info"),
    ("GET", "/tokenizer_info"),
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/rerank"),
    ("POST", "/v2/rerank"),
    ("POST", "/rerank"),
    ("POST", "/v1/score"),
    ("POST", "/score"),
    ("POST", "/api/chat"),
    ("POST", "/api/generate"),
    ("POST", "/api/embed"),
    ("POST", "/api/embeddings"),
    ("POST", "/api/show"),
    ("POST", "/completion"),
    ("POST", "/infill"),
    ("POST", "/apply-template"),
    ("GET", "/api/tags"),
    ("GET", "/api/ps"),
    ("GET", "/api/version"),
    ("GET", "/props"),
}
"""Methods and paths that need a key."""
OPEN = {
    ("GET", "/"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/health"),
    ("GET", "/ping"),
    ("POST", "/ping"),
    ("GET", "/version"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
}
"""Methods and paths that anybody may ask."""
REFUSED = (401, 403)


@pytest.fixture(scope="module")
def http(secured: Secured) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=secured.http, timeout=20) as client:
        yield client


def asked(http: httpx.Client, method: str, path: str, key: str = "", name: str = "none") -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    body = {} if method in ("POST", "PUT") else None
    return http.request(method, re.sub(r"\{\w+\}", name, path), headers=headers, json=body)


def test_every_path_is_in_one_of_the_lists(http: httpx.Client) -> None:
    served = http.get("/openapi.json").json()["paths"]
    assert {(method.upper(), path) for path, methods in served.items() for method in methods} == WITH_KEY | OPEN
    assert not WITH_KEY & OPEN


@pytest.mark.parametrize(("method", "path"), sorted(WITH_KEY))
def test_a_path_that_needs_a_key_refuses_who_has_none(
    http: httpx.Client, keys: Mapping[str, str], method: str, path: str
) -> None:
    for key in ("", "sk-false", new_key("acme", 0)[1]):
        refused = asked(http, method, path, key)
        assert refused.status_code == 401
        error = refused.json()["error"]
        if path.startswith("/api/"):
            assert isinstance(error, str)
            continue
        why = ("type", "authentication_error") if path.startswith("/v1/messages") else ("code", "invalid_api_key")
        assert error[why[0]] == why[1]
    for key in keys.values():
        assert asked(http, method, path, key).status_code not in REFUSED


@pytest.mark.parametrize(("method", "path"), sorted(OPEN))
def test_an_open_path_answers_anybody(http: httpx.Client, keys: Mapping[str, str], method: str, path: str) -> None:
    answers = [asked(http, method, path, key).status_code for key in ("", "sk-false", *keys.values())]
    assert len(set(answers)) == 1
    assert answers[0] not in REFUSED


@pytest.mark.parametrize("path", ["/v1/none", "/v1//models", "/tokenize/none", "/v1/../v1/models"])
def test_a_path_that_does_not_exist_tells_nothing_to_who_has_no_key(http: httpx.Client, path: str) -> None:
    assert http.get(path).status_code == 401


def test_a_named_prompt_is_its_tenants_alone(http: httpx.Client, keys: Mapping[str, str]) -> None:
    own, other = ({"authorization": f"Bearer {keys[tenant]}"} for tenant in ("acme", "other"))
    stored = http.put("/v1/prompts/of-acme", headers=own, json={"prompt": "secret"})
    assert stored.status_code == 200, stored.text
    for method in ("GET", "DELETE"):
        assert http.request(method, "/v1/prompts/of-acme", headers=other).status_code == 404
    assert http.get("/v1/prompts", headers=other).json()["data"] == []
    assert http.get("/v1/prompts/of-acme", headers=own).json()["prompt"] == "secret"
