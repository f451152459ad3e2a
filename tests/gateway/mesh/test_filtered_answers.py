"""Answers of a tenant with a filter: no API, resumption or subject shows what the filter hides."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import grpc
import httpx
import nats
import pytest
from nats.aio.client import Client
from outrider.v1 import inference_pb2 as pb
from outrider.v1.inference_pb2_grpc import InferenceStub
from outrider.v1.sampling_pb2 import Choices, Grammar, SamplingParams
from outrider.wire.frames import WITHHELD, Finish, Frame, decode_frame
from outrider.wire.tenants import Limits

from tests.gateway.filtering import ADDRESS, ENDED, MASKED, SECRET, forced
from tests.gateway.raw_streams import RawStream
from tests.gateway.stack import MODEL, Stack, events
from tests.gateway.tenants import TenantStore, audit_lines
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(300)  # whichever test comes first waits for a mesh to start

ANSWERS = pytest.mark.parametrize(
    ("answer", "shown", "finish"), [(*MASKED, "stop"), (*ENDED, "content_filter")], ids=["masked", "ended"]
)
TALK = [{"role": "user", "content": "a"}]


@pytest.fixture
async def key(tenant_store: TenantStore) -> str:
    return (await tenant_store.key(Limits(filters=("guard",))))[1]


@pytest.fixture
async def http(urls: list[str], key: str) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=f"{urls[0]}/v1", timeout=60, headers=headers) as client:
        yield client


@pytest.fixture
async def bus(shared: Stack) -> AsyncIterator[Client]:
    client = await nats.connect(shared.broker.url)
    yield client
    await client.close()


class Reader:
    """A client over NATS that reads the frames of a chosen request."""

    def __init__(self, bus: Client, key: str) -> None:
        self._bus, self._headers = bus, {"Authorization": f"Bearer {key}"}
        self.frames: list[Frame] = []

    async def told(self, subject: str, **body: Any) -> dict[str, Any]:
        data = json.dumps(body).encode()
        answer = await self._bus.request(f"outrider.v1.{subject}", data, timeout=30, headers=self._headers)
        return dict(json.loads(answer.data))

    async def read(self, **body: Any) -> str:
        """Begins a request, reads it to its end, and returns its id."""
        name = token_hex(8)
        subject = (await self.told("hello"))["subject_prefix"] + name
        await self._bus.subscribe(subject, cb=self._take)
        told = await self.told("generate", request_id=name, **body)
        assert told["subject"] == subject
        await self._end()
        return str(told["request_id"])

    async def resume(self, request: str, start: int) -> None:
        """Reads a request from token ``start`` on."""
        inbox = self._bus.new_inbox()
        await self._bus.subscribe(inbox, cb=self._take)
        body = json.dumps({"request_id": request, "from_index": [start]}).encode()
        await self._bus.publish("outrider.v1.resume", body, reply=inbox, headers=self._headers)
        await self._end()

    @property
    def text(self) -> str:
        return "".join(text for frame in self.frames for text in frame.texts)

    async def _take(self, message: Any) -> None:
        if not message.data.startswith(b"{") and not self._ended:
            self.frames.append(decode_frame(message.data))

    async def _end(self) -> None:
        await eventually(lambda: self._ended)

    @property
    def _ended(self) -> bool:
        return bool(self.frames) and self.frames[-1].finish is not None


@ANSWERS
async def test_a_completion_shows_what_passes(http: httpx.AsyncClient, answer: str, shown: str, finish: str) -> None:
    body = {"model": MODEL, "prompt": "a", "n": 2, "return_tokens": True, "return_drafts": True, **forced(answer)}
    told = (await http.post("/completions", json=body)).json()
    assert [(choice["text"], choice["finish_reason"]) for choice in told["choices"]] == [(shown, finish)] * 2
    extras = told["outrider"]["choices"]
    assert [set(extra["tokens"]) for extra in extras] == [{WITHHELD}] * 2
    assert not [extra for extra in extras if "drafts" in extra]
    assert told["usage"]["completion_tokens"] == sum(len(extra["tokens"]) for extra in extras) > 0


DIVIDED = 'start: "Mail bob@exa" <|im_start|> "mple.org now"'


async def test_a_grammar_may_name_special_tokens_only_for_callers_that_may(
    urls: list[str], keyed_grpc: str, tenant_store: TenantStore, key: str
) -> None:
    guarded, may = Limits(filters=("guard",)), Limits(grammar_tokens=True)
    allowed = (await tenant_store.key(guarded, may))[1]
    body = {"model": MODEL, "prompt": "a", "max_tokens": 50, "structured_outputs": {"grammar": DIVIDED}}
    chat = {"model": MODEL, "messages": TALK, "structured_outputs": {"grammar": DIVIDED}}
    async with httpx.AsyncClient(base_url=f"{urls[0]}/v1", timeout=60) as client:
        for path, each in (("/completions", body), ("/chat/completions", chat)):
            refused = await client.post(path, json=each, headers={"authorization": f"Bearer {key}"})
            error = refused.json()["error"]
            assert (refused.status_code, error["param"]) == (400, "structured_outputs.grammar")
            assert "names the special token <|im_start|>" in error["message"]
        answer = await client.post("/completions", json=body, headers={"authorization": f"Bearer {allowed}"})
        assert answer.json()["choices"][0]["text"] == "Mail [email] now"
    sampling = SamplingParams(max_tokens=50, grammar=Grammar(context_free=DIVIDED))
    async with grpc.aio.insecure_channel(keyed_grpc) as channel:
        request = pb.GenerateRequest(model=MODEL, text="a", sampling=sampling)
        with pytest.raises(grpc.aio.AioRpcError, match="names the special token"):
            await anext(aiter(InferenceStub(channel).Generate(request, metadata=[("authorization", f"Bearer {key}")])))


@ANSWERS
async def test_a_chat_streams_what_passes(http: httpx.AsyncClient, answer: str, shown: str, finish: str) -> None:
    body = {"model": MODEL, "messages": TALK, "stream": True, **forced(answer)}
    async with http.stream("POST", "/chat/completions", json=body) as response:
        choices = [event["choices"][0] async for event in events(response)]
    assert "".join(choice["delta"].get("content", "") for choice in choices) == shown
    assert choices[-1]["finish_reason"] == finish


async def test_an_answer_that_a_filter_ends_is_told_of_without_its_text(
    http: httpx.AsyncClient, audit_log: Path, tenant_store: TenantStore
) -> None:
    answer, _ = ENDED
    told = await http.post("/completions", json={"model": MODEL, "prompt": "a", **forced(answer)})
    (line,) = await audit_lines(audit_log, 1, event="stream_filtered", tenant=tenant_store.tenant)
    assert (line["subject"], told.headers["x-request-id"] in line["request"]) == ("filter guard.secret", True)
    assert SECRET not in str(line)


@ANSWERS
async def test_a_response_is_stored_as_it_was_shown(
    http: httpx.AsyncClient, answer: str, shown: str, finish: str
) -> None:
    body = {"model": MODEL, "input": "a", **forced(answer), "max_output_tokens": 200}
    del body["max_tokens"]
    told = (await http.post("/responses", json=body)).json()
    assert told["output"][0]["content"][0]["text"] == shown
    details = {"reason": finish} if finish == "content_filter" else None
    assert told["incomplete_details"] == details
    assert (await http.get(f"/responses/{told['id']}")).json() == told


@ANSWERS
async def test_grpc_shows_what_passes(keyed_grpc: str, key: str, answer: str, shown: str, finish: str) -> None:
    sampling = SamplingParams(seed=7, max_tokens=200, temperature=1, grammar=Grammar(choice=Choices(texts=[answer])))
    request = pb.GenerateRequest(text="a", sampling=sampling, return_tokens=True)
    metadata = (("authorization", f"Bearer {key}"),)
    async with grpc.aio.insecure_channel(keyed_grpc) as channel:
        parts = [part async for part in InferenceStub(channel).Generate(request, metadata=metadata)]
    assert "".join(part.text for part in parts) == shown
    assert {token for part in parts for token in part.tokens} == {WITHHELD}
    assert parts[-1].finish == finish


@ANSWERS
async def test_nats_shows_what_passes_and_resumes_it_at_any_token(
    bus: Client, key: str, answer: str, shown: str, finish: str
) -> None:
    reader = Reader(bus, key)
    request = await reader.read(prompt="a", **forced(answer))
    texts = [text for frame in reader.frames for text in frame.texts]
    assert ("".join(texts), reader.frames[-1].finish) == (shown, finish)
    for start in range(0, len(texts) + 1, 3):
        late = Reader(bus, key)
        await late.resume(request, start)
        assert (late.text, late.frames[-1].finish) == ("".join(texts[start:]), finish)


@ANSWERS
async def test_another_gateway_resumes_the_same_bytes_behind_any_event(
    urls: list[str], key: str, answer: str, shown: str, finish: str
) -> None:
    stream = await RawStream(urls[0], key).begin(**forced(answer), ignore_eos=False, return_tokens=True)
    for count, event in [*enumerate(stream.events[:-1], 1)][::3]:
        rest = await RawStream(urls[1], key).resume(stream.request, event.id)
        assert rest.events == stream.events[count:]
    assert "".join(event.json["choices"][0]["text"] for event in stream.events[:-1]) == shown
    assert stream.events[-2].json["choices"][0]["finish_reason"] == finish


async def test_clients_can_read_no_subject_that_shows_what_is_hidden(
    bus: Client, key: str, tenant_store: TenantStore
) -> None:
    seen: dict[str, str] = {"tok": "", "unfiltered": ""}

    async def take(message: Any) -> None:
        kind = "unfiltered" if "!" in message.subject else "tok"
        seen[kind] += "".join(decode_frame(message.data).texts)

    await bus.subscribe(f"tok.{tenant_store.tenant}.>", cb=take)
    await bus.subscribe(f"tok.{tenant_store.tenant}!.>", cb=take)
    await Reader(bus, key).read(prompt="a", **forced(MASKED[0]))
    await eventually(lambda: seen == {"tok": MASKED[1], "unfiltered": MASKED[0]})


async def test_arguments_of_calls_are_filtered(http: httpx.AsyncClient) -> None:
    parameters = {"enum": [{"to": ADDRESS}]}
    tools = [{"type": "function", "function": {"name": "send", "parameters": parameters}}]
    body = {"model": MODEL, "messages": TALK, "tools": tools, "tool_choice": "required", "seed": 7, "max_tokens": 200}
    told = (await http.post("/chat/completions", json=body | {"parallel_tool_calls": False})).json()
    (call,) = told["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"to": "[email]"}


async def test_likelihoods_are_refused(http: httpx.AsyncClient) -> None:
    refused = await http.post("/completions", json={"model": MODEL, "prompt": "a", "logprobs": 1})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "logprobs")
    assert refused.json()["error"]["message"] == "logprobs must be absent: answers to this caller are filtered"


async def test_a_filter_that_a_gateway_does_not_have_fails_closed(urls: list[str], tenant_store: TenantStore) -> None:
    _, key = await tenant_store.key(Limits(filters=("guard", "other")))
    async with httpx.AsyncClient(timeout=60, headers={"authorization": f"Bearer {key}"}) as client:
        refused = await client.post(f"{urls[0]}/v1/completions", json={"model": MODEL, "prompt": "a", "max_tokens": 1})
    assert refused.status_code == 503
    assert "the filter 'other' is not set up at this gateway" in refused.json()["error"]["message"]


async def test_a_secret_ends_the_answer_at_its_verifier_and_for_later_readers(bus: Client, key: str) -> None:
    reader = Reader(bus, key)
    request = await reader.read(prompt="a", **forced(f"Use {SECRET}, " + "and so on " * 40))
    late = Reader(bus, key)
    await late.resume(request, 0)
    assert late.text == reader.text == ENDED[1]
    assert late.frames[-1].finish is Finish.FILTERED
    assert late.frames[-1].usage == reader.frames[-1].usage


async def test_a_prompt_is_filtered_and_its_answer_is_not(urls: list[str], tenant_store: TenantStore) -> None:
    _, key = await tenant_store.key(Limits(filters=("porter",)))
    async with httpx.AsyncClient(timeout=60, headers={"authorization": f"Bearer {key}"}) as client:

        async def complete(prompt: str) -> httpx.Response:
            body = {"model": MODEL, "prompt": prompt, "echo": True, **forced(ADDRESS)}
            return await client.post(f"{urls[0]}/v1/completions", json=body)

        assert (await complete(f"{ADDRESS}: ")).json()["choices"][0]["text"] == f"[email]: {ADDRESS}"
        refused = await complete(SECRET)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "content_filter")
