"""The playground's page: it loads nothing else, is cached, and can be switched off."""

from __future__ import annotations

import re

import httpx
import pytest
from outrider.mesh.addresses import hold_port

from tests.gateway.stack import Stack


@pytest.fixture(scope="module")
def served(shared: Stack) -> httpx.Response:
    return httpx.get(shared.url)


def test_the_page_needs_nothing_from_anywhere_else(served: httpx.Response) -> None:
    assert (served.status_code, served.headers["content-type"]) == (200, "text/html; charset=utf-8")
    markup = re.sub(r"<script>.*</script>", "", served.text, flags=re.DOTALL)
    assert re.findall(r'\b(?:src|href)="([^"]*)"', markup) == ["data:,", "/openapi.json"]
    assert "url(" not in markup


def test_the_policy_names_what_is_allowed_and_nothing_in_general(served: httpx.Response) -> None:
    policy = dict(part.split(" ", 1) for part in served.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["form-action"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert all(policy[name].startswith("'sha256-") for name in ("script-src", "style-src"))
    assert "unsafe" not in served.headers["content-security-policy"]
    assert served.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("named", ["{}", "W/{}", '"other", {}', "*"])
def test_who_has_the_page_is_not_sent_it_again(shared: Stack, served: httpx.Response, named: str) -> None:
    etag = served.headers["etag"]
    again = httpx.get(shared.url, headers={"if-none-match": named.format(etag)})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert served.headers["cache-control"] == "no-cache"
    assert httpx.get(shared.url, headers={"if-none-match": '"other"'}).content == served.content


def test_a_gateway_that_is_told_so_has_none(shared: Stack) -> None:
    port = hold_port()
    gateway = shared.add("gateway", port=port, playground="false", nats_door="false")
    gateway.wait_ready()
    refused = httpx.get(f"http://127.0.0.1:{port}/")
    paths = httpx.get(f"http://127.0.0.1:{port}/openapi.json").json()["paths"]
    gateway.stop()
    assert refused.status_code == 404
    assert refused.json()["error"]["message"].startswith("no such path")
    assert "/" not in paths
