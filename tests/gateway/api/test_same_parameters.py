"""Every API reads the same parameters as the same generation, and refuses bad ones with the same sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from msgspec.inspect import type_info
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.micro.request import Request
from outrider.gateway.api.grpc.requests import read_generation
from outrider.gateway.api.nats.queries import read_generate
from outrider.gateway.api.openai.bodies import read_completion
from outrider.gateway.api.openapi.document import document
from outrider.gateway.api.responses.body import read_response
from outrider.gateway.request.generation import Generation
from outrider.mesh.bus.micro import Query
from outrider.mesh.errors import InvalidRequest
from outrider.v1 import inference_pb2 as pb
from outrider.v1.sampling_pb2 import SamplingParams, Speculation
from outrider.wire.sampling import SharedParameters
from starlette.responses import Response
from starlette.routing import Route

from tests.bounds import inside, not_default, outside

LIMIT = 1 << 20
FIELDS = {field.name: field for field in type_info(SharedParameters).fields}
SHARED = {name: field.type for name, field in FIELDS.items()}


@pytest.fixture(scope="module")
def stated() -> dict[str, Any]:
    """Schemas of the OpenAPI document."""

    async def nothing(request: object) -> Response:
        return Response()

    paths = ("/v1/completions", "/v1/chat/completions", "/v1/responses")
    made = document([Route(path, nothing, methods=["POST"]) for path in paths], "0")
    return dict(made["components"]["schemas"])


def _http(name: str, value: Any) -> Generation:
    return read_completion(json.dumps({"prompt": "p", "seed": 1, "max_tokens": 8, name: value}).encode()).generation()


def _grpc(name: str, value: Any) -> Generation:
    sampling = SamplingParams(**{"seed": 1, "max_tokens": 8, name: value})
    return read_generation(pb.GenerateRequest(text="p", sampling=sampling), LIMIT).generation


def _nats(name: str, value: Any) -> Generation:
    data = json.dumps({"prompt": "p", "seed": 1, "max_tokens": 8, name: value}).encode()
    query = Query(Request(Msg(Client(), "outrider.v1.generate", data=data)))
    return read_generate(query, "t", LIMIT, None).shaped.generation


@pytest.mark.parametrize("name", SHARED)
def test_every_api_reads_the_same(name: str) -> None:
    value = not_default(FIELDS[name])
    made = _http(name, value)
    assert getattr(made.sampling, name) == value != getattr(SharedParameters(), name)
    assert _grpc(name, value) == _nats(name, value) == made
    body = json.dumps({"input": "p", "seed": 1, "max_output_tokens": 8, name: value}).encode()
    assert read_response(body).generation([]).sampling == made.sampling


@pytest.mark.parametrize("name", [name for name, kind in SHARED.items() if outside(kind) is not None])
@pytest.mark.parametrize("read", [_grpc, _nats])
def test_every_api_refuses_the_same_with_the_same_sentence(read: Callable[[str, Any], Generation], name: str) -> None:
    wrong = outside(SHARED[name])
    with pytest.raises(InvalidRequest) as http:
        _http(name, wrong)
    with pytest.raises(InvalidRequest) as other:
        read(name, wrong)
    assert (other.value.param, other.value.message) == (http.value.param, http.value.message)
    assert (http.value.param or "").startswith(name)


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("body", ["CompletionBody", "ChatBody", "ResponseBody"])
def test_every_body_states_the_bounds_of_the_parameter(body: str, name: str, stated: dict[str, Any]) -> None:
    schema = jsonschema_rs.Draft202012Validator(stated[body]["properties"][name])
    value, wrong = (json.loads(json.dumps(each(SHARED[name]))) for each in (inside, outside))
    assert schema.is_valid(value)
    assert wrong is None or not schema.is_valid(wrong)


def test_speculation_is_read_the_same() -> None:
    speculation = Speculation(drafters=["ngram"], max_nodes=9, private=True, return_drafts=True)
    made = read_generation(pb.GenerateRequest(text="p", speculation=speculation), LIMIT).generation
    options = {"drafters": ["ngram"], "max_nodes": 9, "private": True}
    body = {"prompt": "p", "speculation": options, "return_drafts": True}
    assert made.speculation == read_completion(json.dumps(body).encode()).generation().speculation
    assert made.speculation.to_proto() == speculation
