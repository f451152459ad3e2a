"""The client over gRPC against a real mesh whose processes are killed while it reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from outrider.gateway.errors import UnknownModel, error_answer
from outrider.mesh.addresses import hold_port
from outrider.mesh.errors import ERRORS, Internal, OutriderError
from outrider.mesh.registry import Registry
from outrider.mesh.rpc import Server
from outrider.v1.inference_pb2_grpc import InferenceServicer, add_InferenceServicer_to_server
from outrider.wire.frames import Finish
from outrider_client import (
    AsyncClient,
    BadRequestError,
    CancelledError,
    Chunk,
    ConnectionFailedError,
    GatewayError,
    NotFoundError,
    OutriderClientError,
)
from outrider_client import grpc as over_grpc
from outrider_client.errors import error_of_answer

from tests.gateway.stack import CONTEXT, MODEL, Stack
from tests.gateway.streaming import Gateway, finish, holder, spare

pytestmark = pytest.mark.timeout(300)  # the first test waits for a mesh to start

MESSAGES = [{"role": "user", "content": "def f("}]
ASKED: dict[str, Any] = {"seed": 7, "max_tokens": 400, "ignore_eos": True, "return_tokens": True}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"enum": [{"a": 12345}]}}}
NAMED = {"type": "function", "function": {"name": "f"}}


@pytest.fixture
async def client(one: Gateway) -> AsyncIterator[over_grpc.AsyncClient]:
    async with over_grpc.AsyncClient(one.grpc) as made:
        yield made


def _tokens(chunks: list[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in (chunk.outrider.tokens if chunk.outrider else [])]


@pytest.mark.parametrize(
    "more",
    [
        {"temperature": 0.7, "top_p": 0.9, "logit_bias": {"5": 2.5}, "stop": ["zz"], "stop_token_ids": [3]},
        {"seed": -3, "bad_words": ["a", [7]], "speculation": {"drafters": ["model"], "max_nodes": 4}, "min_tokens": 2},
        {"speculation": "off", "logprobs": 1, "echo": True, "priority": 3, "parse_special_tokens": False},
        {"structured_outputs": {"choice": ["yes", "no"]}, "ignore_eos": False},
        {"structured_outputs": {"grammar": 'start: "ab"'}, "ignore_eos": False, "max_completion_tokens": 40},
        {"response_format": {"type": "json_object"}, "ignore_eos": False},
        {"coalesce": False, "timeout_ms": 60_000, "ttft_ms": 60_000, "return_drafts": True, "speculation": "off"},
    ],
    ids=["floats", "words", "plain", "choice", "lark", "json", "drafts"],
)
async def test_every_parameter_of_http_means_the_same(
    one: Gateway, client: over_grpc.AsyncClient, more: dict[str, Any]
) -> None:
    parameters = ASKED | {"max_tokens": 40} | more
    if "max_completion_tokens" in more:
        del parameters["max_tokens"]
    async with AsyncClient(one.url) as http:
        whole = await http.complete("def f(", **parameters)
    answer = await client.complete("def f(", **parameters)
    assert (answer.text, answer.usage and answer.usage.total_tokens) == (
        whole.text,
        whole.usage and whole.usage.total_tokens,
    )
    assert (answer.model, answer.system_fingerprint) == (MODEL, whole.system_fingerprint)
    assert answer.choices[0].finish_reason == whole.choices[0].finish_reason
    assert answer.outrider is not None
    assert whole.outrider is not None
    assert (answer.outrider.tokens, answer.outrider.first_index) == (whole.outrider.tokens, whole.outrider.first_index)
    assert answer.outrider.drafts == whole.outrider.drafts
    async with client.stream("def f(", **parameters) as stream:
        assert "".join([chunk.text async for chunk in stream]) == whole.text


async def test_chats_and_calls_of_functions_are_those_of_http(one: Gateway, client: over_grpc.AsyncClient) -> None:
    parameters: dict[str, Any] = {"seed": 7, "max_tokens": 200, "n": 2, "tools": [TOOL], "tool_choice": NAMED}
    answer = await client.chat(MESSAGES, **parameters, logprobs=True, top_logprobs=1)
    async with AsyncClient(one.url) as http:
        whole = await http.chat(MESSAGES, **parameters, logprobs=True, top_logprobs=1)
    assert [choice.finish_reason for choice in answer.choices] == ["tool_calls"] * 2
    assert [
        choice.message and [call["function"] for call in choice.message.tool_calls] for choice in answer.choices
    ] == [choice.message and [call["function"] for call in choice.message.tool_calls] for choice in whole.choices]
    assert answer.choices[1].logprobs == {"content": whole.choices[1].logprobs and whole.choices[1].logprobs["content"]}


def test_the_synchronous_client_gets_the_same_answers(one: Gateway) -> None:
    with over_grpc.Client([f"127.0.0.1:{hold_port()}", one.grpc]) as client:
        whole = client.complete("def f(", **ASKED)
        assert client.models() == [MODEL]
        assert client.detokenize(client.tokenize("def f(")) == "def f("
        assert client.chat(MESSAGES, seed=1, max_tokens=8).text
        with client.stream("def f(", **ASKED) as stream:
            assert "".join(chunk.text for chunk in stream) == whole.text
        assert stream.next == [400]
        assert "".join(chunk.text for chunk in client.resume(stream.id)) == whole.text
        assert _tokens(list(client.resume(stream.id, [390]))) == _tokens([whole])[390:]
        with pytest.raises(BadRequestError, match="temperature") as refused:
            client.complete("a", temperature=-1)
        assert (refused.value.status, refused.value.param) == (400, "temperature")
        assert refused.value.request_id
        with pytest.raises(NotFoundError) as unknown:
            list(client.stream("a", model="none"))
        assert (unknown.value.code, unknown.value.type) == ("model_not_found", "not_found_error")
        with pytest.raises(TypeError, match="suffix"):
            client.complete("a", suffix="b")


class Failing(InferenceServicer):
    """Fails with the error ``error``."""

    def __init__(self) -> None:
        self.error: OutriderError = Internal()

    async def ListModels(self, request: Any, context: Any) -> Any:  # noqa: N802
        raise self.error


async def test_every_error_over_grpc_is_the_error_over_http() -> None:
    server, failing = Server(), Failing()
    add_InferenceServicer_to_server(failing, server)
    await server.start()
    await server.set_serving(True)
    async with over_grpc.AsyncClient(f"127.0.0.1:{server.port}", max_retries=0) as client:
        for kind in [*ERRORS, UnknownModel]:
            failing.error = kind("why", param="a[0].b", retry_after=0.25)
            with pytest.raises(GatewayError) as caught:
                await client.models()
            over_http = error_of_answer(kind.http_status, msgspec.json.encode(error_answer(failing.error)))
            answer = caught.value
            assert type(answer) is type(over_http)
            assert (answer.status, answer.type, str(answer)) == (over_http.status, over_http.type, str(over_http))
            if kind is not Internal:
                assert (answer.param, answer.retry_after) == ("a[0].b", 0.25)
    await server.stop(0)


def test_an_unreachable_gateway_is_a_connection_error() -> None:
    with over_grpc.Client(f"127.0.0.1:{hold_port()}", max_retries=1) as client:
        for call in (client.models, lambda: list(client.stream("a"))):
            with pytest.raises(ConnectionFailedError):
                call()


async def test_a_gateway_killed_with_its_verifier_goes_unnoticed(
    streaming: Stack, one: Gateway, client: over_grpc.AsyncClient, streaming_registry: Registry
) -> None:
    killed = Gateway(streaming)
    await spare(streaming)
    await killed.ready()
    chunks: list[Chunk] = []
    async with (
        over_grpc.AsyncClient([killed.grpc, one.grpc]) as both,
        both.stream("def f(", **ASKED) as stream,
    ):
        async for chunk in stream:
            chunks.append(chunk)
            if len(chunks) == 5:
                dead = await holder(streaming_registry, stream.id)
                verifiers = [each for each in streaming.processes if each.settings.get("instance") == dead]
                for process in [killed.process, *verifiers]:
                    await asyncio.to_thread(process.kill)
    assert chunks[-1].choices[0].finish_reason == "length"
    assert _tokens(chunks) == _tokens([await client.complete("def f(", **ASKED)])


@pytest.mark.usefixtures("halted")
async def test_a_stream_that_is_left_is_not_generated_on(
    client: over_grpc.AsyncClient, streaming_registry: Registry
) -> None:
    async with client.stream("def f(", **ASKED | {"max_tokens": CONTEXT - 100}) as stream:
        async for _ in stream:
            break
    assert await finish(streaming_registry, stream.id) is Finish.CANCELLED
    with pytest.raises(NotFoundError):
        await client.cancel(stream.id)


@pytest.mark.usefixtures("halted")
async def test_a_stream_that_another_cancels_ends_in_an_error(client: over_grpc.AsyncClient) -> None:
    async def read() -> None:
        async with client.stream("def f(", **ASKED | {"max_tokens": CONTEXT - 100}) as stream:
            async for _ in stream:
                await client.cancel(stream.id)
                break
            async for _ in stream:
                pass

    with pytest.raises(OutriderClientError) as caught:
        await read()
    assert isinstance(caught.value, CancelledError)
