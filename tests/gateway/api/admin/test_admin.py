"""The admin API of a gateway without models, on a broker that knows its users."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import jsonschema_rs
import pytest
from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Bucket, Bus
from outrider.wire.tenant_records import TenantRecords
from outrider.wire.tenants import BUCKET

from tests.gateway.stack import stack
from tests.waiting import eventually


class Api(NamedTuple):
    """A running admin API, and keys of an administrator and of somebody else."""

    url: str
    client: httpx.Client
    other: str
    gateway: str
    audit_log: Path

    def call(self, method: str, path: str, status: int = 200, **more: Any) -> Any:
        """The JSON answer to a call, which has to have this status."""
        answer = self.client.request(method, f"{self.url}/admin/v1/{path}", **more)
        assert answer.status_code == status, answer.text
        return answer.json()

    def refusal(self, method: str, path: str, status: int, **more: Any) -> str:
        """The message of an error."""
        return str(self.call(method, path, status, **more)["error"]["message"])


async def _keys(url: str) -> list[tuple[str, str]]:
    """Ids and texts of two keys."""
    bus = Bus()
    await bus.connect(url, "test", wait_s=10)
    bucket = Bucket(bus, BUCKET)
    await bucket.open()
    records = TenantRecords(bucket)
    await records.set_limits("operators", lambda limits: limits, time.time())
    made = [await records.create_key("operators", time.time(), scopes=scopes) for scopes in (("admin",), ())]
    await bus.close()
    return [(key.id, text) for key, text in made]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    logs = tmp_path_factory.mktemp("logs")
    with stack(logs, logs, stores=True) as made:
        (_, text), (_, other) = asyncio.run(_keys(made.broker.url))
        address, log = f"127.0.0.1:{hold_port()}", logs / "audit.jsonl"
        settings = {"auth": "keys", "admin_address": address, "audit_log": log}
        made.add("gateway", port=made.port, grpc_port=made.grpc_port, **settings).wait_ready()
        with httpx.Client(headers={"authorization": f"Bearer {text}"}, timeout=60) as client:
            yield Api(f"http://{address}", client, other, made.url, log)


def test_an_administrator_makes_rotates_and_revokes_keys_that_gateways_take(api: Api) -> None:
    def status(key: str) -> int:
        return httpx.get(f"{api.gateway}/v1/models", headers={"x-api-key": key}, timeout=60).status_code

    limits = {"tokens_per_minute": 500, "models": ["toy"]}
    assert api.call("PUT", "tenants/acme", json={"limits": limits})["limits"] == limits
    made = api.call("POST", "keys", json={"tenant": "acme", "label": "ci", "expires_s": 3600})
    assert (made["state"], made["expires"] - made["created"], status(made["key"])) == ("active", 3600, 200)
    shown = api.call("GET", f"keys/{made['id']}")
    assert shown == {name: value for name, value in made.items() if name != "key"}
    newer = api.call("POST", f"keys/{made['id']}/rotate", json={"grace_s": 600})
    assert (newer["label"], status(newer["key"])) == ("ci", 200)
    assert api.call("GET", f"keys/{made['id']}")["replaced"] is not None
    assert api.call("POST", f"keys/{newer['id']}/revoke")["state"] == "revoked"
    listed = api.call("GET", "keys?tenant=acme")["data"]
    assert [(key["id"], key["state"]) for key in listed] == [(made["id"], "active"), (newer["id"], "revoked")]
    assert [tenant["name"] for tenant in api.call("GET", "tenants")["data"]] == ["acme", "operators"]


def test_a_tenant_is_replaced_as_a_whole(api: Api) -> None:
    api.call("PUT", "tenants/whole", json={"limits": {"tokens_per_day": 5, "priority": 1}})
    api.call("PUT", "tenants/whole", json={"limits": {"priority": 2, "tokens_per_day": None}})
    assert api.call("GET", "tenants/whole")["limits"] == {"priority": 2}


@pytest.mark.parametrize(
    ("method", "path", "status", "body", "sentence"),
    [
        ("PUT", "tenants/a.b", 400, {"limits": {}}, "name must be the name of a tenant: 1 to 64"),
        ("PUT", "tenants/acme", 400, {}, "limits is required: an object with values of limits by their names"),
        ("PUT", "tenants/acme", 400, {"limits": {"tokens": 5}}, "limits.tokens is no limit"),
        (
            "PUT",
            "tenants/acme",
            400,
            {"limits": {"tokens_per_day": 0}},
            "limits.tokens_per_day must be an integer from 1 to",
        ),
        (
            "PUT",
            "tenants/acme",
            400,
            {"limits": {"networks": ["10.0.0.1/8"]}},
            "limits.networks: 10.0.0.1/8 has host bits set",
        ),
        ("PUT", "tenants/acme", 400, {"limit": {}}, "limit is no parameter (did you mean limits?)"),
        ("POST", "keys", 404, {"tenant": "nobody"}, "there is no tenant nobody"),
        ("POST", "keys", 400, {"tenant": "acme", "expires_s": 0}, "expires_s must be an integer from 1 to 3153600000"),
        ("POST", "keys/1234/revoke", 400, {}, "id must be the id of a key: 16 of 0-9 and a-f"),
        ("GET", "keys/0123456789abcdef", 404, None, "there is no key 0123456789abcdef"),
        ("GET", "keys?tennant=acme", 400, None, "tennant is no parameter (did you mean tenant?)"),
        ("DELETE", "tenants/acme", 405, None, "this path may be asked with GET, HEAD, PUT, not with DELETE"),
        ("GET", "nothing", 404, None, "no such path"),
    ],
)
def test_a_wrong_call_is_refused_with_what_is_allowed(
    api: Api, method: str, path: str, status: int, body: Any, sentence: str
) -> None:
    assert sentence in api.refusal(method, path, status, json=body)


def test_a_disabled_tenant_is_refused_until_it_is_enabled(api: Api) -> None:
    api.call("PUT", "tenants/idle", json={"limits": {}})
    key = api.call("POST", "keys", json={"tenant": "idle", "scopes": ["http"]})
    assert key["scopes"] == ["http"]

    def status() -> int:
        return httpx.get(f"{api.gateway}/v1/models", headers={"x-api-key": key["key"]}, timeout=60).status_code

    for action, expected in (("disable", 401), ("enable", 200)):
        shown = api.call("POST", f"tenants/idle/{action}")
        assert (shown["disabled"] is not None) == (action == "disable")
        asyncio.run(eventually(lambda expected=expected: status() == expected))


def test_a_key_is_rotated_once(api: Api) -> None:
    first = api.call("POST", "keys", json={"tenant": "operators"})["id"]
    api.call("POST", f"keys/{first}/rotate")
    assert "rotate the newer one" in api.refusal("POST", f"keys/{first}/rotate", 412)


def test_only_an_administrators_key_opens_the_api_and_only_on_its_own_address(api: Api) -> None:
    statuses = [
        httpx.get(f"{api.url}/admin/v1/keys", headers=headers, timeout=60).status_code
        for headers in ({}, {"x-api-key": api.other}, {"x-api-key": "sk-wrong"})
    ]
    assert statuses == [401, 403, 401]
    assert httpx.get(f"{api.gateway}/admin/v1/keys", headers={"x-api-key": api.other}, timeout=60).status_code == 404
    assert api.client.get(f"{api.url}/v1/models").status_code == 404


async def test_calls_and_changes_are_told_without_the_keys(api: Api) -> None:
    made = await asyncio.to_thread(api.call, "POST", "keys", json={"tenant": "operators", "label": "told"})
    for path, status in ((f"keys/{made['key']}", 400), (f"keys?tenant={made['key']}", 404)):
        await asyncio.to_thread(api.refusal, "GET", path, status)

    def about() -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in api.audit_log.read_text().splitlines()]
        start = next((at for at, line in enumerate(lines) if line["subject"] == f"key {made['id']}"), len(lines))
        return [line for line in lines[start:] if line["door"] == "admin"]

    await eventually(lambda: len(about()) == 4)
    created, call, wrong, absent = about()
    assert (created["event"], created["tenant"], created["address"]) == ("key_created", "operators", "127.0.0.1")
    assert (call["event"], call["outcome"], call["subject"]) == ("admin_call", "done", "POST /admin/v1/keys")
    assert call["request"] == created["request"]
    assert call["actor"].startswith("key ")
    assert (wrong["outcome"], wrong["subject"]) == ("failed", "GET /admin/v1/keys/{id}")
    assert absent["reason"] == f"there is no tenant sk-{made['id']}-..."
    assert made["key"].split("-", 2)[2] not in api.audit_log.read_text()


def test_use_is_that_of_the_ledgers(api: Api) -> None:
    api.call("PUT", "tenants/used", json={"limits": {"requests_per_minute": 100}})
    made = api.call("POST", "keys", json={"tenant": "used", "limits": {"concurrent_streams": 2}})
    body = {"model": "none", "prompt": "a"}
    headers = {"x-api-key": made["key"]}
    minute = -1
    while minute != time.time() // 60:  # a limit counts by the minute: all in one
        minute = time.time() // 60
        answers = [httpx.post(f"{api.gateway}/v1/tokenize", json=body, headers=headers, timeout=60) for _ in range(3)]
        assert {answer.status_code for answer in answers} <= {404, 503}
        tenant, key = api.call("GET", "usage?tenant=used")["data"]
    assert (tenant["limit"], tenant["value"], tenant["period_s"], tenant["key"]) == (
        "requests_per_minute",
        100,
        60,
        None,
    )
    assert tenant["used"] + tenant["held"] >= 3
    assert tenant["period_start"] % 60 == 0
    assert (key["limit"], key["key"], key["used"]) == ("concurrent_streams", made["id"], 0)


def test_answers_are_those_of_the_document(api: Api) -> None:
    served = httpx.get(f"{api.url}/openapi.json", timeout=60).json()
    for path in ("/admin/v1/tenants", "/admin/v1/keys", "/admin/v1/usage"):
        operation = served["paths"][path]["get"]
        assert operation["security"] == [{"bearer": []}, {"key": []}]
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        validator = jsonschema_rs.Draft202012Validator(schema | {"components": served["components"]})
        validator.validate(api.client.get(api.url + path).json())
