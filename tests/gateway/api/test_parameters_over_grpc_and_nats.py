"""NATS and gRPC read every parameter as HTTP does, so that it has the same effect."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import msgspec
import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.micro.request import Request
from outrider.gateway.admission.deadlines import Deadlines
from outrider.gateway.api.grpc.requests import read_generation
from outrider.gateway.api.nats.queries import NatsParameters, read_generate
from outrider.gateway.api.openai.bodies import ChatBody, CompletionBody, ShapedGeneration, read_body_of_any_kind
from outrider.gateway.api.responses.body import ResponseBody
from outrider.gateway.request.generation import Generation
from outrider.mesh.bus.micro import Query
from outrider.mesh.errors import InvalidRequest
from outrider.v1 import inference_pb2 as pb
from outrider_client.grpc.requests import generation

from tests.gateway.parameters import CHAT, COMPLETION, GRPC, HI, NATS, REPOSITORY, Effect, Said, functions_of

SAID = Said([5, 6, 7, 8], ["a", "b", "c", "d"], "answer")
BASES: list[tuple[dict[str, Any], dict[str, Effect]]] = [
    ({"prompt": "a", "seed": 3, "max_tokens": 9}, COMPLETION),
    ({"messages": HI, "seed": 3, "max_tokens": 9}, CHAT),
]
TRIED = {
    f"{next(iter(base))} {name}": (name, effect.bodies(name, base, SAID)[1])
    for base, effects in BASES
    for name, effect in effects.items()
}
TYPES = [REPOSITORY / "clients/typescript/src" / file for file in ("parameters.ts", "responses.ts")]
NOT_OVER_GRPC = {
    *("stream", "user", "prompt_cache_key", "cache_salt", "chat_template_kwargs", "thinking"),
    *("suffix", "best_of", "truncate_prompt_tokens", "return_token_ids", "json_schema", "grammar"),
    *("prompt_logprobs", "timings_per_token"),
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar"),
    *("chat_template", "documents", "add_generation_prompt", "continue_final_message"),
}
OF_THE_MODEL = "sampling.thought."
"""Fields that gateways set and clients do not."""
NO_FIELD = {f"response_format.json_schema.{name}" for name in ("name", "description", "strict")}
"""Parts of a format that the protocol has no field for: it has the schema alone."""


@pytest.mark.parametrize("name", TRIED)
def test_nats_reads_what_http_reads(name: str) -> None:
    _, body = TRIED[name]
    query = Query(Request(Msg(Client(), "outrider.v1.generate", data=json.dumps(body).encode())))
    over_http = outcome(lambda: read_body_of_any_kind(body | {"stream": True}, []))
    over_nats = outcome(lambda: read_generate(query, "t", 1 << 20, []).shaped)
    assert over_nats == over_http


@pytest.mark.parametrize("name", TRIED)
def test_grpc_reads_what_http_reads_or_has_no_such_parameter(name: str) -> None:
    parameter, body = TRIED[name]
    message = over_grpc(body)
    assert (message is None) is (parameter.partition(".")[0] in NOT_OVER_GRPC | {"stream_options"})
    if message is None or parameter in NO_FIELD:
        return
    over_http = outcome(lambda: read_body_of_any_kind(body, []))
    assert same(outcome(lambda: read_generation(message, 1 << 20)), over_http)


def test_every_field_of_a_request_over_grpc_is_tried() -> None:
    messages = [over_grpc(body) for _, body in [*TRIED.values(), ("prompt", {"prompt": [1, 2]})]]
    tried = {name for message in messages if message is not None for name in set_fields(message)}
    fields = {name for name in all_fields(pb.GenerateRequest.DESCRIPTOR) if not name.startswith(OF_THE_MODEL)}
    assert fields == tried | set(GRPC)


def test_every_parameter_of_nats_alone_has_an_effect_to_be_tried() -> None:
    assert set(NatsParameters.__struct_fields__) == set(NATS)


@pytest.mark.parametrize("name", [*NATS, *GRPC])
def test_a_parameter_of_one_api_has_a_test(name: str) -> None:
    path, _, test = (NATS | GRPC)[name].test.partition("::")
    assert test in functions_of(path)


@pytest.mark.parametrize("body", [CompletionBody, ChatBody, ResponseBody])
def test_the_typescript_client_has_a_type_for_every_parameter(body: type[msgspec.Struct]) -> None:
    typed = {name for file in TYPES for name in re.findall(r"^ +(\w+)\??:", file.read_text(), re.MULTILINE)}
    own = {"stream", "prompt", "messages", "input", "ttft_ms", "timeout_ms"}
    assert not set(body.__struct_fields__) - typed - own


def outcome(read: Callable[[], ShapedGeneration]) -> Any:
    """What ``read`` returns, or the refusal that it raises; of a deadline, which passes by, whether there is one."""
    try:
        made, shape = read()
    except InvalidRequest as error:
        return error.message, error.param
    deadlines = [each < inf for each in msgspec.structs.astuple(made.deadlines)]
    return msgspec.structs.replace(made, deadlines=Deadlines()), deadlines, shape


def same(made: Any, wanted: Any) -> bool:
    """Whether two outcomes are the same but for the form of the answer and the name of the parameter of a structure."""
    if not isinstance(made[0], Generation):
        return bool(made == wanted)
    grammars = [each and each.grammar for each in (made[0].structure, wanted[0].structure)]
    plain = [msgspec.structs.replace(each[0], structure=None) for each in (made, wanted)]
    return bool(grammars[0] == grammars[1] and plain[0] == plain[1] and made[1] == wanted[1])


def over_grpc(body: dict[str, Any]) -> pb.GenerateRequest | None:
    """The message that the Python client makes of ``body``; None if gRPC has no such parameter."""
    rest = {name: value for name, value in body.items() if name not in ("prompt", "messages")}
    try:
        made = generation(body.get("prompt"), body.get("messages"), rest)
    except TypeError:
        return None
    return pb.GenerateRequest.FromString(made.SerializeToString())


def all_fields(descriptor: Descriptor, place: str = "") -> Iterator[str]:
    """Paths of the fields of a message, and of the messages in it."""
    for each in descriptor.fields:
        inner = each.message_type
        if inner is None or inner.GetOptions().map_entry:
            yield place + each.name
        else:
            yield from all_fields(inner, f"{place}{each.name}.")


def set_fields(message: Message, place: str = "") -> Iterator[str]:
    """Paths of the fields that ``message`` sets."""
    for each, value in message.ListFields():
        inner = each.message_type
        if inner is None or inner.GetOptions().map_entry:
            yield place + each.name
        else:
            for part in value if each.is_repeated else [value]:
                yield from set_fields(part, f"{place}{each.name}.")
