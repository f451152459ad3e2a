"""Web pages of other origins: a browser's preflight requests, and the headers of answers."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from outrider.gateway.settings import GatewaySettings
from outrider.mesh.addresses import hold_port
from outrider.wire.tenants import Limits

from tests.gateway.stack import MODEL, Stack
from tests.gateway.tenants import TenantStore

APP, STRANGER = "https://app.example.com", "https://evil.example.com"
BODY = {"model": MODEL, "prompt": "def f(", "max_tokens": 2}


@pytest.fixture(scope="module")
def url(shared: Stack) -> Iterator[str]:
    """A gateway that requires keys and allows web pages of one origin."""
    port = hold_port()
    gateway = shared.add("gateway", port=port, auth="keys", cors_origins=APP, nats_door="false")
    gateway.wait_ready()
    yield f"http://127.0.0.1:{port}"
    gateway.stop()


def preflight(url: str, origin: str, method: str = "POST", headers: str = "authorization") -> httpx.Response:
    asked = {"origin": origin, "access-control-request-method": method, "access-control-request-headers": headers}
    return httpx.options(f"{url}/v1/completions", headers=asked)


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_browser_may_ask_beforehand_without_a_key(url: str, method: str) -> None:
    wanted = "authorization,content-type,x-stainless-lang,last-event-id"
    told = preflight(url, APP, method, wanted)
    assert (told.status_code, told.headers["access-control-allow-origin"]) == (200, APP)
    assert method in told.headers["access-control-allow-methods"]
    assert told.headers["access-control-allow-headers"] == wanted
    assert "access-control-allow-credentials" not in told.headers


def test_a_page_of_another_origin_is_let_read_nothing(url: str) -> None:
    told = preflight(url, STRANGER)
    assert (told.status_code, "access-control-allow-origin" in told.headers) == (400, False)
    read = httpx.get(f"{url}/v1/models", headers={"origin": STRANGER})
    assert "access-control-allow-origin" not in read.headers
    assert preflight(url, APP, "PATCH").status_code == 400


async def test_answers_streams_and_errors_can_be_read_with_what_they_tell_of_limits(
    url: str, tenant_store: TenantStore
) -> None:
    _, key = await tenant_store.key(Limits(requests_per_minute=1000, tokens_per_day=100))
    headers = {"origin": APP, "authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as page:
        whole = await page.post("/v1/completions", json=BODY)
        streamed = await page.post("/v1/completions", json=BODY | {"stream": True})
        over = await page.post("/v1/completions", json=BODY | {"max_tokens": 92})
        wrong = await page.post("/v1/completions", json=BODY | {"n": 0})
        nobody = await page.get("/v1/models", headers={"authorization": ""})
    assert [each.status_code for each in (whole, streamed, over, wrong, nobody)] == [200, 200, 429, 400, 401]
    for answer in (whole, streamed, over, wrong, nobody):
        assert answer.headers["access-control-allow-origin"] == APP
        assert "Origin" in answer.headers["vary"]
        exposed = {name.strip() for name in answer.headers["access-control-expose-headers"].split(",")}
        told = {name for name in answer.headers if name.startswith("x-r") or name == "retry-after"}
        assert told <= exposed
    assert {"x-ratelimit-remaining-tokens", "x-ratelimit-reset-requests", "retry-after"} <= exposed
    assert "retry-after" in over.headers
    assert streamed.text.endswith("\n\n")


def test_the_playground_works_beside_it_and_is_shared_with_nobody_by_default(url: str, shared: Stack) -> None:
    page = httpx.get(url, headers={"origin": url})
    assert page.status_code == 200
    assert "connect-src 'self'" in page.headers["content-security-policy"]
    asked = httpx.post(f"{shared.url}/v1/completions", json=BODY, headers={"origin": shared.url}, timeout=60)
    assert asked.status_code == 200
    assert not [name for name in asked.headers if name.startswith("access-control")]
    assert preflight(shared.url, APP).status_code == 405


@pytest.mark.parametrize("origin", ["app.example.com", "https://app.example.com/", "https://A.com", "", "https://"])
def test_what_no_browser_would_send_is_no_origin(origin: str) -> None:
    with pytest.raises(ValueError, match="cors_origins"):
        GatewaySettings(cors_origins=[origin])


def test_origins_are_as_browsers_write_them() -> None:
    GatewaySettings(cors_origins=["*", APP, "http://localhost:3000", "http://[::1]:3000"])
