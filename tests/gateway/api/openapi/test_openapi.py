"""The served OpenAPI document agrees with the gateway that serves it."""

from __future__ import annotations

import copy
from typing import Any

import httpx
import jsonschema_rs
import pytest
from outrider.gateway.api.openapi.document import document
from starlette.responses import Response
from starlette.routing import Route

from tests.gateway.api.openapi.contract import Contract
from tests.gateway.stack import Stack

pytestmark = pytest.mark.timeout(300)  # whichever test comes first waits for a mesh to start


@pytest.fixture(scope="module")
def served(shared: Stack) -> dict[str, Any]:
    return dict(httpx.get(f"{shared.url}/openapi.json").json())


def test_every_answer_is_one_that_the_document_knows(shared: Stack) -> None:
    contract = Contract(shared.url, seed=1)
    contract.check(60)
    assert not contract.violations
    assert {200, 400, 404} <= contract.statuses.keys()


def test_a_violation_is_found(shared: Stack, served: dict[str, Any]) -> None:
    contract = Contract(shared.url, seed=1, document=_without_bad_requests(served))
    contract.check(10)
    assert {violation.why.partition(" Received")[0] for violation in contract.violations} == {
        "Undocumented status code"
    }


def test_every_parameter_and_its_bounds_are_those_that_are_checked(served: dict[str, Any]) -> None:
    body = served["components"]["schemas"]["ResponseBody"]
    assert body["required"] == ["input"]
    assert body["properties"]["temperature"]["anyOf"][0]["maximum"] == 100
    assert body["properties"]["prompt"] == {"enum": [None]}
    items = body["properties"]["input"]["anyOf"][0]["anyOf"][1]["items"]
    assert items["discriminator"]["propertyName"] == "type"
    assert set(served["paths"]["/v1/completions"]["post"]["responses"]) >= {"200", "400", "401", "429", "503"}


def test_when_to_come_back_is_promised_where_every_error_of_a_status_says_it(served: dict[str, Any]) -> None:
    answers = served["paths"]["/v1/completions"]["post"]["responses"]
    promised = {status: answer["headers"].get("retry-after", {}).get("required") for status, answer in answers.items()}
    assert (promised["503"], promised["429"], promised["400"]) == (True, False, None)


def _body(path: str, **changes: Any) -> dict[str, Any]:
    """A valid body with ``changes``; None removes a parameter."""
    length = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    right = EXAMPLES[path] | ({length: 2} if path in GENERATING else {}) | changes
    return {name: value for name, value in right.items() if value is not None}


EXAMPLES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "def f("},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "def f("}]},
    "/v1/responses": {"input": "def f("},
    "/v1/messages": {"messages": [{"role": "user", "content": "def f("}]},
    "/v1/tokenize": {"prompt": "def f("},
    "/v1/prompts/{name}": {"prompt": "def f("},
}
GENERATING = ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages")
MESSAGES: list[Any] = EXAMPLES["/v1/chat/completions"]["messages"]
PART = {"type": "text", "text": "a"}
OUTPUTS = {"structured_outputs": {"choice": ["a"]}}
EDGES: list[tuple[str, dict[str, Any], bool]] = [
    *(("/v1/completions", {"prompt": value}, True) for value in ("a", [5], ["a"], [[5]])),
    *(("/v1/completions", {"prompt": value}, False) for value in ([], [-1], [1 << 31], [True], [1.5], [[]], [{}], {})),
    *(
        (path, {"messages": [message], "prompt": None}, right)
        for path in ("/v1/chat/completions", "/v1/tokenize", "/v1/prompts/{name}")
        for message, right in (
            ({"role": "user", "content": [PART, PART], "name": "a"}, True),
            ({"content": "a"}, False),
            ({"role": 5, "content": "a"}, False),
            ({"role": "user", "content": 5}, False),
            ({"role": "user", "content": ["a"]}, False),
            ({"role": "user", "content": [PART | {"type": "image_url"}]}, False),
            ({"role": "user", "content": [{"type": "text"}]}, False),
        )
    ),
    *(
        (path, {"logit_bias": bias}, right)
        for path in GENERATING
        for bias, right in (({"5": 1}, True), ({"a": 1}, False), ({"-1": 1}, False), ({"5": 101}, False))
    ),
    *(
        (path, {"structured_outputs": value}, right)
        for path in GENERATING
        for value, right in (
            ({"choice": ["a"]}, True),
            ({"regex": "a", "json_object": None}, True),
            ({}, False),
            ({"json_object": False}, False),
            ({"choice": ["a"], "regex": "a"}, False),
        )
    ),
    *(
        (path, changes, right)
        for path in GENERATING[:2]
        for changes, right in (
            ({"stream_options": {"include_usage": True, "continuous_usage_stats": True}, "stream": True}, True),
            ({"stream_options": {"include_usage": True}}, False),
            ({"stream_options": {"include_obfuscation": True}, "stream": True}, True),
        )
    ),
    ("/v1/completions", {"max_tokens": 0, "echo": True}, True),
    ("/v1/completions", {"max_tokens": 0}, False),
    ("/v1/chat/completions", {"top_logprobs": 2, "logprobs": True}, True),
    ("/v1/chat/completions", {"top_logprobs": 2}, False),
    ("/v1/responses", {"top_logprobs": 2, "include": ["message.output_text.logprobs"]}, True),
    ("/v1/responses", {"top_logprobs": 2}, False),
    ("/v1/responses", {"background": True, "store": False}, False),
    ("/v1/responses", {"tools": [{"type": "web_search"}]}, True),
    ("/v1/responses", {"tools": [{"name": "f"}]}, False),
    ("/v1/messages", {"messages": []}, False),
    ("/v1/messages", {"messages": [{"role": "cook", "content": "a"}]}, False),
    ("/v1/messages", {"messages": [{"role": "user"}]}, False),
    ("/v1/messages", {"messages": [{"role": "user", "content": [PART]}], "system": [PART]}, True),
    ("/v1/messages", {"system": 5}, False),
    ("/v1/messages", {"tool_choice": {"type": "some"}}, False),
    ("/v1/messages", {"thinking": {"type": "adaptive"}, "stop_sequences": ["a"]}, True),
    ("/v1/messages", {"mcp_servers": [{}]}, False),
    ("/v1/tokenize", {"messages": MESSAGES}, False),
    ("/v1/tokenize", {"prompt": None}, False),
    ("/v1/tokenize", {"add_generation_prompt": True}, False),
    ("/v1/tokenize", {"tools": []}, False),
    ("/v1/tokenize", {"messages": MESSAGES, "prompt": None, "add_special_tokens": True}, False),
    ("/v1/tokenize", {"messages": MESSAGES, "prompt": None, "add_special_tokens": False}, True),
    ("/v1/prompts/{name}", {"messages": MESSAGES}, False),
    ("/v1/prompts/{name}", {"prompt": None}, False),
]


@pytest.mark.parametrize(("path", "changes", "right"), EDGES)
def test_the_document_and_the_gateway_agree_at_every_edge(
    shared: Stack, served: dict[str, Any], path: str, changes: dict[str, Any], right: bool
) -> None:
    method, body = ("put" if "name" in path else "post"), _body(path, **changes)
    schema = served["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"]
    told = jsonschema_rs.Draft202012Validator(schema | {"components": served["components"]}).is_valid(body)
    answer = httpx.request(method, shared.url + path.replace("{name}", "edge"), json=body, timeout=60)
    assert (told, answer.status_code) == (right, 200 if right else 400), answer.text


@pytest.mark.parametrize(("name", "status"), [("a" * 64, 200), ("a" * 65, 400), ("a.b", 400), ("é", 400)])
def test_names_in_paths_are_those_that_are_taken(shared: Stack, served: dict[str, Any], name: str, status: int) -> None:
    (parameter,) = served["paths"]["/v1/prompts/{name}"]["put"]["parameters"]
    assert jsonschema_rs.Draft202012Validator(parameter["schema"]).is_valid(name) is (status == 200)
    assert httpx.put(f"{shared.url}/v1/prompts/{name}", json={"prompt": "a"}, timeout=60).status_code == status


def test_a_route_without_a_description_cannot_be_served() -> None:
    async def nothing(request: object) -> Response:
        return Response()

    with pytest.raises(KeyError):
        document([Route("/v1/new", nothing)], "0")


def _without_bad_requests(served: dict[str, Any]) -> dict[str, Any]:
    wrong = copy.deepcopy(served)
    for path in wrong["paths"].values():
        for operation in path.values():
            operation["responses"].pop("400", None)
    return wrong
