"""The gateway over gRPC, for a client that uses nothing but reflection and the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from outrider.mesh.registry import Registry
from outrider.v1 import inference_pb2 as pb
from outrider.v1.inference_pb2_grpc import InferenceStub
from outrider.v1.sampling_pb2 import Choices, Grammar, SamplingParams, Speculation
from outrider.wire.frames import Finish
from outrider.wire.ids import pack_ids
from outrider.wire.tenants import Limits

from tests.gateway.deadlines import SOON_MS, answers_seem_short
from tests.gateway.stack import CONTEXT, MODEL, RUNNING, Stack
from tests.gateway.streaming import Gateway, finish, holder
from tests.gateway.tenants import TenantStore, complete, get, shared_answers
from tests.latch import FEW, Latch
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(300)  # whichever test comes first waits for a mesh to start

PROMPT = "def f("
SOON_S = SOON_MS / 1000


@pytest.fixture
async def stub(shared: Stack) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(shared.grpc) as channel:
        yield InferenceStub(channel)


def _ask(text: str = PROMPT, **sampling: Any) -> pb.GenerateRequest:
    asked = {"seed": 7, "max_tokens": 20, "ignore_eos": True} | sampling
    return pb.GenerateRequest(model=MODEL, text=text, sampling=SamplingParams(**asked), return_tokens=True)


def _http(shared: Stack, path: str = "completions", **body: Any) -> httpx.Response:
    return httpx.post(f"{shared.url}/v1/{path}", json=body, timeout=60)


async def _refused(call: Any) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or "", dict(caught.value.trailing_metadata() or ())


async def _once_certain(call: Callable[[], Any]) -> grpc.StatusCode:
    """The refusal once it is not UNAVAILABLE: a gateway that has just joined calls no stream unknown."""
    async with asyncio.timeout(60):
        while (code := (await _refused(call()))[0]) is grpc.StatusCode.UNAVAILABLE:
            await asyncio.sleep(0.2)
    return code


async def _rest(call: Any) -> None:
    while True:
        await call.read()


async def test_reflection_lists_the_service_and_is_enough_to_call_it(shared: Stack) -> None:
    async with grpc.aio.insecure_channel(shared.grpc) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        asked = health_pb2.HealthCheckRequest(service="outrider.v1.Inference")
        assert (await health.Check(asked)).status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        wanted = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol="outrider.v1.Inference"),
        ]
        listed, files = [answer async for answer in reflection.ServerReflectionInfo(iter(wanted))]
        assert "outrider.v1.Inference" in [each.name for each in listed.list_services_response.service]
        pool = DescriptorPool()
        found = [FileDescriptorProto.FromString(each) for each in files.file_descriptor_response.file_descriptor_proto]
        for file in sorted(found, key=lambda file: len(file.dependency)):
            pool.Add(file)
        method = pool.FindServiceByName("outrider.v1.Inference").FindMethodByName("ListModels")
        call = channel.unary_unary(
            "/outrider.v1.Inference/ListModels",
            request_serializer=GetMessageClass(method.input_type).SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        assert list((await call(GetMessageClass(method.input_type)())).models) == [MODEL]


@pytest.mark.parametrize(
    ("sampling", "body"),
    [
        ({"temperature": 0.7, "top_p": 0.9, "logprobs": 2}, {"temperature": 0.7, "top_p": 0.9, "logprobs": 2}),
        ({"temperature": 0.0}, {"temperature": 0}),
        ({"seed": 2**64 - 5, "logit_bias": {5: 3.5}}, {"seed": -5, "logit_bias": {"5": 3.5}}),
        (
            {"grammar": Grammar(choice=Choices(texts=["yes", "no"])), "ignore_eos": False},
            {"structured_outputs": {"choice": ["yes", "no"]}, "ignore_eos": False},
        ),
        ({"echo": True, "top_k": 5, "presence_penalty": 0.5}, {"echo": True, "top_k": 5, "presence_penalty": 0.5}),
    ],
    ids=["nucleus", "greedy", "bias", "grammar", "echo"],
)
async def test_the_answer_is_that_of_http(
    shared: Stack, stub: Any, sampling: dict[str, Any], body: dict[str, Any]
) -> None:
    asked = {"model": MODEL, "prompt": PROMPT, "seed": 7, "max_tokens": 20, "ignore_eos": True, "return_tokens": True}
    answer = await asyncio.to_thread(_http, shared, **asked | body)
    told, (choice,) = answer.json(), answer.json()["choices"]
    whole = (await stub.Complete(pb.CompleteRequest(request=_ask(**sampling)))).choices[0]
    parts = [part async for part in stub.Generate(_ask(**sampling))]
    assert whole.text == "".join(part.text for part in parts) == choice["text"]
    assert list(whole.tokens) == [token for part in parts for token in part.tokens] == told["outrider"]["tokens"]
    assert list(whole.texts) == told["outrider"]["texts"]
    assert (whole.finish, whole.first_index) == (choice["finish_reason"], told["outrider"]["first_index"])
    assert (whole.usage.completion_tokens, whole.detail.fingerprint) == (
        told["usage"]["completion_tokens"],
        told["system_fingerprint"],
    )
    if choice["logprobs"]:
        assert [entry.logprob for entry in whole.logprobs] == choice["logprobs"]["token_logprobs"]
        assert {len(entry.top) for entry in whole.logprobs} == {2}


async def test_chats_choices_calls_and_ids_are_those_of_http(shared: Stack, stub: Any) -> None:
    tool = '[{"type": "function", "function": {"name": "f", "parameters": {"enum": [{"a": 12345}]}}}]'
    request = pb.GenerateRequest(messages_json='[{"role": "user", "content": "a"}]', n=2, tools_json=tool)
    request.parallel_tool_calls = False
    request.sampling.CopyFrom(SamplingParams(seed=7, max_tokens=200))
    request.tool_choice_json = '"required"'
    answer = await stub.Complete(pb.CompleteRequest(request=request))
    body = {"messages": [{"role": "user", "content": "a"}], "n": 2, "seed": 7, "max_tokens": 200}
    body["parallel_tool_calls"] = False
    made = await asyncio.to_thread(
        _http, shared, "chat/completions", **body, tools=httpx.Response(200, text=tool).json(), tool_choice="required"
    )
    told = made.json()
    assert {choice.finish for choice in answer.choices} == {"tool_calls"}
    said = [[(call.name, call.arguments) for call in choice.tool_calls] for choice in answer.choices]
    assert said == [
        [(call["function"]["name"], call["function"]["arguments"]) for call in choice["message"].get("tool_calls", [])]
        for choice in told["choices"]
    ]
    assert [choice.finish for choice in answer.choices] == [choice["finish_reason"] for choice in told["choices"]]
    assert answer.usage.completion_tokens == told["usage"]["completion_tokens"]
    tokens = (await stub.Tokenize(pb.TokenizeRequest(text=PROMPT))).tokens
    by_ids = pb.GenerateRequest(ids=pack_ids(tokens), sampling=SamplingParams(seed=7, max_tokens=5))
    by_text = pb.GenerateRequest(text=PROMPT, sampling=SamplingParams(seed=7, max_tokens=5))
    answers = [await stub.Complete(pb.CompleteRequest(request=each)) for each in (by_ids, by_text)]
    assert answers[0].choices[0].tokens == answers[1].choices[0].tokens
    assert (await stub.Detokenize(pb.DetokenizeRequest(tokens=tokens))).text == PROMPT
    request.tools_json = request.tool_choice_json = ""
    request.ClearField("parallel_tool_calls")
    bare = await stub.Complete(pb.CompleteRequest(request=request))
    rendered = await stub.Tokenize(pb.TokenizeRequest(messages_json=request.messages_json))
    assert (len(rendered.tokens), rendered.context_length) == (bare.usage.prompt_tokens, CONTEXT)


@pytest.mark.parametrize(
    ("request_", "body", "code"),
    [
        (_ask(temperature=-1.0), {"prompt": PROMPT, "temperature": -1.0}, "INVALID_ARGUMENT"),
        (_ask(temperature=101), {"prompt": PROMPT, "temperature": 101.0}, "INVALID_ARGUMENT"),
        (_ask(max_tokens=0), {"prompt": PROMPT, "max_tokens": 0}, "INVALID_ARGUMENT"),
        (
            _ask(grammar=Grammar(regex="("), ignore_eos=False),
            {"prompt": PROMPT, "structured_outputs": {"regex": "("}},
            "INVALID_ARGUMENT",
        ),
        (pb.GenerateRequest(model="none", text="a"), {"model": "none", "prompt": "a"}, "NOT_FOUND"),
        (pb.GenerateRequest(text="a", n=0), {"prompt": "a", "n": 0}, "INVALID_ARGUMENT"),
        (pb.GenerateRequest(), {}, "INVALID_ARGUMENT"),
        (pb.GenerateRequest(text="a", ttft_ms=0), {"prompt": "a", "ttft_ms": 0}, "INVALID_ARGUMENT"),
        (pb.GenerateRequest(text="a", timeout_ms=-1), {"prompt": "a", "timeout_ms": -1}, "INVALID_ARGUMENT"),
        (
            pb.GenerateRequest(messages_json="[{}]", sampling=SamplingParams(echo=True)),
            {"messages": [{}], "echo": True},
            "INVALID_ARGUMENT",
        ),
    ],
    ids=["low", "high", "none", "regex", "model", "n", "empty", "ttft", "timeout", "echo"],
)
async def test_an_error_says_what_it_says_over_http(
    shared: Stack, stub: Any, request_: pb.GenerateRequest, body: dict[str, Any], code: str
) -> None:
    path = "chat/completions" if "messages" in body else "completions"
    told = (await asyncio.to_thread(_http, shared, path, **body)).json()["error"]
    for call in (stub.Complete(pb.CompleteRequest(request=request_)), stub.Generate(request_).read()):
        status, message, trailing = await _refused(call)
        assert (status.name, message) == (code, told["message"])
        assert trailing.get("outrider-param") == told["param"]
        assert trailing.get("outrider-code") == told["code"]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (_ask(temperature=float("nan")), "temperature must be a number from 0 to 100, not nan"),
        (pb.GenerateRequest(ids=b"abcde"), "5 bytes are no whole number"),
        (pb.GenerateRequest(messages_json="["), "messages_json is not valid JSON"),
        (pb.GenerateRequest(text="a", speculation=Speculation(off=True, max_nodes=2)), "off may not be given with"),
        (pb.GenerateRequest.FromString(b"\xba\x3e\x01x"), "number 999, which is not known"),
        (
            pb.GenerateRequest(sampling=SamplingParams.FromString(b"\xb8\x3e\x01")),
            "sampling holds a field with the number",
        ),
        (pb.GenerateRequest(text="a" * (1 << 20)), "larger than 1048576 bytes"),
    ],
    ids=["nan", "ids", "json", "off", "unknown", "deep", "large"],
)
async def test_what_only_grpc_can_say_wrong_is_refused_too(
    stub: Any, request_: pb.GenerateRequest, message: str
) -> None:
    status, told, _ = await _refused(stub.Complete(pb.CompleteRequest(request=request_)))
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert message in told


async def _started(registry: Registry, request: str) -> None:
    async with asyncio.timeout(60):
        while True:
            with suppress(AssertionError):
                await holder(registry, request)
                return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("whole", "timeout"), [(False, None), (False, SOON_S), (True, SOON_S)], ids=["leaves", "late stream", "late answer"]
)
async def test_who_leaves_or_runs_out_of_time_ends_the_generation(
    shared: Stack, shared_halted: Latch, stub: Any, registry: Registry, whole: bool, timeout: float | None
) -> None:
    if timeout is not None:
        await answers_seem_short(shared.url)
    long = _ask(max_tokens=CONTEXT - 100, stop=["nobody says this"])
    long.n = RUNNING
    call = (
        stub.Complete(pb.CompleteRequest(request=long), timeout=timeout)
        if whole
        else stub.Generate(long, timeout=timeout)
    )
    last = f"{dict(await call.initial_metadata())['x-request-id']}-{long.n - 1}"
    if timeout is None:
        await _started(registry, last)
        call.cancel()
    else:
        assert (await _refused(call if whole else _rest(call)))[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    ended = await finish(registry, last)
    assert ended is Finish.CANCELLED or (timeout is not None and ended is Finish.TIMEOUT)
    await eventually(lambda: all(m.status["load"] == 0 for m in registry.members("verifier")))


@pytest.mark.parametrize(
    ("more", "timeout", "param"),
    [({"timeout_ms": 1}, None, "timeout_ms"), ({"ttft_ms": 1}, None, "ttft_ms"), ({}, SOON_S, "timeout_ms")],
    ids=["timeout", "ttft", "deadline"],
)
async def test_what_cannot_be_in_time_is_refused_at_once_unless_it_lingers(
    stub: Any, shared_halted: Latch, more: dict[str, int], timeout: float | None, param: str
) -> None:
    shared_halted.set(FEW, pace_s=0.02)
    await stub.Complete(pb.CompleteRequest(request=_ask(max_tokens=FEW)))
    long = _ask("def f(" * 300, max_tokens=CONTEXT // 2)
    long.MergeFrom(pb.GenerateRequest(**more))
    status, message, trailing = await _refused(stub.Complete(pb.CompleteRequest(request=long), timeout=timeout))
    assert (status.name, trailing["outrider-code"], trailing["outrider-param"]) == (
        "RESOURCE_EXHAUSTED",
        "deadline_unmeetable",
        param,
    )
    assert "with nothing else to do" in message
    if timeout is None:
        return
    long.linger = True
    call = stub.Generate(long, timeout=timeout)
    assert (await _refused(_rest(call)))[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    await stub.Cancel(pb.CancelGenerationRequest(request_id=dict(await call.initial_metadata())["x-request-id"]))


@pytest.mark.parametrize("given", [True, False, None])
@pytest.mark.usefixtures("shared_halted")
async def test_whether_the_very_same_is_shared_is_as_over_http(shared: Stack, stub: Any, given: bool | None) -> None:
    asked = _ask(max_tokens=CONTEXT // 2)
    if given is not None:
        asked.coalesce = given
    before = await shared_answers(shared.url)
    first, second = stub.Generate(asked), stub.Generate(asked)
    await asyncio.gather(first.read(), second.read())
    first.cancel()
    second.cancel()
    assert await shared_answers(shared.url) - before == (given is not False)


async def test_a_stream_is_taken_up_again_through_any_api(one: Gateway, other: Gateway) -> None:
    async with grpc.aio.insecure_channel(one.grpc) as first, grpc.aio.insecure_channel(other.grpc) as second:
        begun, asked = InferenceStub(first), _ask(max_tokens=300)
        whole = [token async for part in begun.Generate(asked) for token in part.tokens]
        asked.linger = True
        call = begun.Generate(asked)
        request = dict(await call.initial_metadata())["x-request-id"]
        had: list[int] = []
        while len(had) < 20:
            had += (await call.read()).tokens
        call.cancel()
        resumed = InferenceStub(second)
        rest = [part async for part in resumed.Resume(pb.ResumeRequest(request_id=request, from_index=[len(had)]))]
        assert had + [token for part in rest for token in part.tokens] == whole
        assert (rest[-1].finish, rest[-1].usage.completion_tokens) == ("length", 300)
        again = [part async for part in resumed.Resume(pb.ResumeRequest(request_id=request, from_index=[300]))]
        assert [(list(part.tokens), part.finish) for part in again] == [([], "length")]
        over_http = await asyncio.to_thread(httpx.get, f"{other.url}/v1/streams/{request}", timeout=60)
        assert over_http.text.endswith(f"data: [DONE]\nid: {request}:done\n\n")
        status, message, _ = await _refused(
            resumed.Resume(pb.ResumeRequest(request_id=request, from_index=[0, 0])).read()
        )
        assert (status.name, message) == ("INVALID_ARGUMENT", "from_index must be one index, or 1")
        await begun.Cancel(pb.CancelGenerationRequest(request_id=request))
        for gone in (
            lambda: begun.Cancel(pb.CancelGenerationRequest(request_id=request)),
            lambda: begun.Resume(pb.ResumeRequest(request_id=request)).read(),
            lambda: begun.Cancel(pb.CancelGenerationRequest(request_id="*")),
        ):
            assert await _once_certain(gone) is grpc.StatusCode.NOT_FOUND


async def test_keys_and_limits_are_those_of_http(urls: list[str], keyed_grpc: str, tenant_store: TenantStore) -> None:
    _, key = await tenant_store.key(Limits(tokens_per_day=200))
    async with grpc.aio.insecure_channel(keyed_grpc) as channel:
        stub = InferenceStub(channel)
        status, message, trailing = await _refused(stub.ListModels(pb.ListModelsRequest()))
        assert (status.name, trailing["outrider-code"]) == ("UNAUTHENTICATED", "invalid_api_key")
        assert message == (await get(f"{urls[0]}/v1/models")).json()["error"]["message"]
        used = (await complete(urls[1], key)).usage
        assert used is not None
        for metadata in ((("authorization", f"Bearer {key}"),), (("x-api-key", key),)):
            assert list((await stub.ListModels(pb.ListModelsRequest(), metadata=metadata)).models) == [MODEL]
        call = stub.Complete(pb.CompleteRequest(request=_ask("ab", max_tokens=4)), metadata=metadata)
        spent = (await call).usage
        headers = dict(await call.trailing_metadata())
        assert headers["x-ratelimit-limit-tokens"] == "200"
        left = 200 - used.total_tokens - spent.prompt_tokens - 4
        assert int(headers["x-ratelimit-remaining-tokens"]) == left
        status, message, trailing = await _refused(
            stub.Complete(pb.CompleteRequest(request=_ask("ab", max_tokens=195)), metadata=metadata)
        )
        assert (status.name, trailing["outrider-code"]) == ("RESOURCE_EXHAUSTED", "rate_limit_exceeded")
        assert f"tenant {tenant_store.tenant} has reached its limit of 200 tokens per day" in message
        assert int(trailing["retry-after-ms"]) >= 1000
        assert "x-ratelimit-reset-tokens" in trailing


@pytest.mark.parametrize("field", ["messages_json", "tools_json", "tool_choice_json"])
async def test_json_that_is_too_deep_is_refused_by_its_field(stub: Any, field: str) -> None:
    deep = "[" * 1000 + "]" * 1000
    for call in (
        stub.Complete(pb.CompleteRequest(request=pb.GenerateRequest(**{field: deep}))),
        stub.Tokenize(pb.TokenizeRequest(messages_json=deep)),
    ):
        code, why, _ = await _refused(call)
        assert (code, "deeper than 100 levels" in why) == (grpc.StatusCode.INVALID_ARGUMENT, True)


async def test_two_keys_in_the_metadata_are_refused(stub: Any) -> None:
    metadata = (("authorization", "Bearer sk-a"), ("authorization", "Bearer sk-b"))
    code, why, _ = await _refused(stub.ListModels(pb.ListModelsRequest(), metadata=metadata))
    assert (code, "given several times" in why) == (grpc.StatusCode.INVALID_ARGUMENT, True)


async def test_metadata_and_requests_are_bounded(shared: Stack, stub: Any) -> None:
    """gRPC itself refuses headers from 16 KiB on, counted as HTTP/2 counts them, and ends the call alone."""
    code, _, _ = await _refused(stub.ListModels(pb.ListModelsRequest(), metadata=(("x", "a" * (64 << 10)),)))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    code, _, _ = await _refused(stub.Tokenize(pb.TokenizeRequest(text="a" * (2 << 20))))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    code, why, _ = await _refused(stub.Tokenize(pb.TokenizeRequest(text="a" * (1 << 20))))
    assert (code, "larger than 1048576 bytes" in why) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    assert list((await stub.ListModels(pb.ListModelsRequest())).models) == [MODEL]
