"""The served OpenAPI document is true of the gateway that serves it."""

from __future__ import annotations

import copy
from typing import Any

import httpx
import pytest
from outrider.gateway.openapi.document import document
from outrider.loadtest.contract import Contract
from starlette.responses import Response
from starlette.routing import Route

from tests.gateway.stack import Stack


@pytest.fixture(scope="module")
def served(shared: Stack) -> dict[str, Any]:
    return dict(httpx.get(f"{shared.url}/openapi.json").json())


def test_every_answer_is_one_that_the_document_knows(shared: Stack) -> None:
    contract = Contract(shared.url, seed=1)
    contract.check(150)
    assert not contract.violations
    assert {200, 400, 404} <= contract.statuses.keys()


def test_a_violation_is_found(shared: Stack, served: dict[str, Any]) -> None:
    contract = Contract(shared.url, seed=1, document=_without_bad_requests(served))
    contract.check(20)
    assert {violation.why.partition(" Received")[0] for violation in contract.violations} == {
        "Undocumented status code"
    }


def test_every_parameter_and_its_bounds_are_those_that_are_checked(served: dict[str, Any]) -> None:
    body = served["components"]["schemas"]["ResponseBody"]
    assert body["required"] == ["input"]
    assert body["properties"]["temperature"]["anyOf"][0]["maximum"] == 100
    assert body["properties"]["truncation"] == {"enum": ["disabled", None]}
    items = body["properties"]["input"]["anyOf"][0]["anyOf"][1]["items"]
    assert items["discriminator"]["propertyName"] == "type"
    assert set(served["paths"]["/v1/completions"]["post"]["responses"]) >= {"200", "400", "401", "429", "503"}


def test_when_to_come_back_is_promised_where_every_error_of_a_status_says_it(served: dict[str, Any]) -> None:
    answers = served["paths"]["/v1/completions"]["post"]["responses"]
    promised = {status: answer["headers"].get("retry-after", {}).get("required") for status, answer in answers.items()}
    assert (promised["503"], promised["429"], promised["400"]) == (True, False, None)


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
