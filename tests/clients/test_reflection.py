"""Clients over gRPC without generated code, which use the gateway's reflection."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tests.gateway.streaming import Gateway

DOCUMENT = Path(__file__).parents[2] / "docs" / "grpc-api.md"
ASKED = {"text": "def f(", "sampling": {"max_tokens": 20, "seed": 1, "ignore_eos": True}}

pytestmark = pytest.mark.timeout(300)


class Reflected:
    """Calls methods by name, with message types from reflection."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel
        self.database = ProtoReflectionDescriptorDatabase(channel)
        self._service = DescriptorPool(self.database).FindServiceByName("outrider.v1.Inference")

    def call(self, name: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        """All answers of a method."""
        method = self._service.FindMethodByName(name)
        make = self._channel.unary_stream if method.server_streaming else self._channel.unary_unary
        request = ParseDict(body, GetMessageClass(method.input_type)())
        path, kind = f"/{self._service.full_name}/{name}", GetMessageClass(method.output_type)
        response = make(path, _bytes, kind.FromString)(request, timeout=60)
        answers = response if method.server_streaming else [response]
        return [MessageToDict(answer, preserving_proto_field_name=True) for answer in answers]


@pytest.fixture
def reflected(one: Gateway) -> Iterator[Reflected]:
    with grpc.insecure_channel(one.grpc) as channel:
        yield Reflected(channel)


def test_reflection_is_enough_for_every_kind_of_call(one: Gateway, reflected: Reflected) -> None:
    assert "outrider.v1.Inference" in reflected.database.get_services()
    body = ASKED["sampling"] | {"prompt": ASKED["text"]}
    text = httpx.post(f"{one.url}/v1/completions", json=body, timeout=60).json()["choices"][0]["text"]
    streamed = reflected.call("Generate", ASKED)
    assert "".join(message.get("text", "") for message in streamed) == text
    assert streamed[-1]["usage"]["completion_tokens"] == 20
    (whole,) = reflected.call("Complete", {"request": ASKED})
    assert whole["choices"][0]["text"] == text
    (counted,) = reflected.call("Tokenize", {"text": ASKED["text"]})
    assert streamed[-1]["usage"]["prompt_tokens"] == len(counted["tokens"])
    with pytest.raises(grpc.RpcError) as refused:
        reflected.call("Generate", {"text": "a", "sampling": {"temperature": -1}})
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.skipif(shutil.which("grpcurl") is None, reason="there is no grpcurl")
def test_grpcurl_prints_the_output_of_the_documentation(one: Gateway) -> None:
    shown = DOCUMENT.read_text().partition("    grpcurl ")[2].partition("\n\n")[0].replace("\\\n", "")
    command = shlex.split("grpcurl " + shown.replace("127.0.0.1:8081", one.grpc))
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    last = json.loads(output[output.rindex("\n{") :])
    assert (last["finish"], last["usage"]["completion_tokens"]) == ("length", 16)


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())
