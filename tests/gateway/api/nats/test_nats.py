"""The gateway over NATS, for a client that uses nothing but nats-py."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

import grpc
import httpx
import nats
import openai
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from outrider.mesh.addresses import hold_port
from outrider.mesh.registry import Registry
from outrider.v1 import inference_pb2 as pb
from outrider.v1.inference_pb2_grpc import InferenceStub
from outrider.v1.sampling_pb2 import SamplingParams
from outrider.wire.frames import Finish, Frame, decode_frame
from outrider.wire.tenants import Limits

from tests.gateway.deadlines import SOON_MS, answers_seem_short
from tests.gateway.stack import CONTEXT, MODEL, Stack
from tests.gateway.streaming import Gateway, finish, holder, spare
from tests.gateway.tenants import TenantStore, complete
from tests.latch import FEW
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(300)  # whichever test comes first waits for a mesh to start

DOCUMENT = Path(__file__).parents[4] / "docs" / "nats-api.md"
ASKED = {"prompt": "def f(", "seed": 7, "max_tokens": 300, "ignore_eos": True}


class Reader:
    """A client over NATS, which reads frames until the last one."""

    def __init__(self, client: Client, key: str = "") -> None:
        self.client = client
        self._headers = {"Authorization": f"Bearer {key}"} if key else None
        self.frames: list[Frame] = []
        self.ended = asyncio.Event()

    async def ask(self, subject: str, **body: Any) -> Msg:
        """One answer."""
        data = json.dumps(body).encode()
        return await self.client.request(f"outrider.v1.{subject}", data, timeout=30, headers=self._headers)

    async def told(self, subject: str, **body: Any) -> dict[str, Any]:
        """The answer's JSON."""
        return dict(json.loads((await self.ask(subject, **body)).data))

    async def begin(self, **more: Any) -> str:
        """Subscribes to the frames of a request with a chosen id, begins the request, and returns its id."""
        name = token_hex(8)
        hello = await self.told("hello")
        subject = hello["subject_prefix"] + name
        await self.client.subscribe(subject, cb=self._take)
        told = await self.told(f"generate.{MODEL}", request_id=name, **ASKED | more)
        assert told["subject"] == subject
        return str(told["request_id"])

    async def resume(self, request: str, start: int) -> dict[str, Any]:
        """Resumes through the gateway."""
        inbox = self.client.new_inbox()
        messages = await self.client.subscribe(inbox)
        body = json.dumps({"request_id": request, "from_index": [start]}).encode()
        await self.client.publish("outrider.v1.resume", body, reply=inbox)
        answer = dict(json.loads((await messages.next_msg(30)).data))
        while "error" not in answer and not self.ended.is_set():
            await self._take(await messages.next_msg(30))
        return answer

    async def _take(self, message: Msg) -> None:
        frame = decode_frame(message.data)
        if self.ended.is_set():
            return
        self.frames.append(frame)
        if frame.finish is not None and (frame.finish is not Finish.CANCELLED or frame.error):
            self.ended.set()

    @property
    def tokens(self) -> list[int]:
        """The frames read; fails if one is missing, repeated or out of order."""
        found: list[int] = []
        for frame in self.frames:
            assert not frame.tokens or frame.first_index == len(found)
            found += frame.tokens
        return found


@asynccontextmanager
async def _reader(url: str, key: str = "") -> AsyncIterator[Reader]:
    client = await nats.connect(url)
    try:
        yield Reader(client, key)
    finally:
        await client.close()


@pytest.fixture
async def reader(streaming: Stack, one: Gateway) -> AsyncIterator[Reader]:
    async with _reader(streaming.broker.url) as made:
        yield made


async def _whole(gateway: Gateway, **more: Any) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=60) as http:
        answer = await http.post(f"{gateway.url}/v1/completions", json=ASKED | {"return_tokens": True} | more)
    return dict(answer.json())


async def test_the_service_is_discovered_as_any_other(streaming: Stack, one: Gateway, reader: Reader) -> None:
    pong = json.loads((await reader.client.request("$SRV.PING", timeout=10)).data)
    assert (pong["type"], pong["name"]) == ("io.nats.micro.v1.ping_response", "outrider")
    info = json.loads((await reader.client.request("$SRV.INFO.outrider", timeout=10)).data)
    assert {each["subject"] for each in info["endpoints"]} == {
        "outrider.v1.hello",
        "outrider.v1.models",
        "outrider.v1.generate",
        "outrider.v1.generate.>",
        "outrider.v1.resume",
        "outrider.v1.cancel",
    }
    assert await reader.told("models") == {"models": [MODEL]}
    stats = json.loads((await reader.client.request(f"$SRV.STATS.outrider.{info['id']}", timeout=10)).data)
    assert (stats["type"], stats["id"]) == ("io.nats.micro.v1.stats_response", info["id"])
    assert {each["subject"] for each in stats["endpoints"]} == {each["subject"] for each in info["endpoints"]}


async def test_who_subscribes_and_then_asks_gets_every_token_that_the_other_apis_send(
    one: Gateway, reader: Reader
) -> None:
    await reader.begin()
    await asyncio.wait_for(reader.ended.wait(), 60)
    told = await _whole(one)
    assert reader.tokens == told["outrider"]["tokens"]
    assert "".join(text for frame in reader.frames for text in frame.texts) == told["choices"][0]["text"]
    last = reader.frames[-1]
    assert (last.finish, last.usage and last.usage.completion_tokens) == (Finish.LENGTH, 300)
    async with grpc.aio.insecure_channel(one.grpc) as channel:
        sampling = SamplingParams(seed=7, max_tokens=300, ignore_eos=True)
        request = pb.CompleteRequest(request=pb.GenerateRequest(text="def f(", sampling=sampling))
        assert list((await InferenceStub(channel).Complete(request)).choices[0].tokens) == reader.tokens


async def test_the_client_in_the_documentation_prints_the_answer(streaming: Stack, one: Gateway) -> None:
    script = DOCUMENT.read_text().partition("```python\n")[2].partition("```")[0]
    assert "nats://127.0.0.1:4222" in script
    command = [sys.executable, "-c", script.replace("nats://127.0.0.1:4222", streaming.broker.url)]
    command.append(str(streaming.users.client))
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=True)
    told = await _whole(one, seed=1, max_tokens=32, ignore_eos=False)
    assert done.stdout == told["choices"][0]["text"]


async def test_a_request_whose_reply_subject_is_no_inbox_is_not_answered(reader: Reader, one: Gateway) -> None:
    forged = await reader.client.subscribe("tok.victim.request")
    await reader.client.publish("outrider.v1.hello", b"", reply="tok.victim.request")
    await reader.told("hello")
    await reader.client.publish("tok.victim.request", b"of the verifier")
    assert (await forged.next_msg(timeout=10)).data == b"of the verifier"


async def test_chats_and_choices_have_a_subject_each(reader: Reader, one: Gateway) -> None:
    messages = [{"role": "user", "content": "a"}]
    told = await reader.told("generate", messages=messages, n=2, seed=7, max_tokens=5, ignore_eos=True)
    assert told["subjects"] == [told["subject"], f"{told['subject']}-1"]
    await reader.resume(told["request_id"], 0)
    async with httpx.AsyncClient(timeout=60) as http:
        body = {"messages": messages, "n": 2, "seed": 7, "max_tokens": 5, "ignore_eos": True}
        answer = (await http.post(f"{one.url}/v1/chat/completions", json=body)).json()
    texts = {
        id_: "".join(text for frame in reader.frames if frame.request == id_ for text in frame.texts)
        for id_ in (told["request_id"], f"{told['request_id']}-1")
    }
    wanted = [choice["message"]["content"] for choice in answer["choices"]]
    ended = reader.frames[-1].request
    assert texts[ended] == wanted[0 if ended == told["request_id"] else 1]


async def test_a_request_is_taken_up_again_from_any_index_after_a_gateway_or_a_verifier_died(
    streaming: Stack, one: Gateway, other: Gateway, reader: Reader, streaming_registry: Registry
) -> None:
    whole = (await _whole(other))["outrider"]["tokens"]
    with streaming.latch.at(FEW):
        request = await reader.begin()
        await eventually(lambda: len(reader.tokens) == FEW)
        await spare(streaming)
        dead = await holder(streaming_registry, request)
        for process in streaming.processes:
            if process.settings.get("instance") == dead:
                await asyncio.to_thread(process.kill)
    await asyncio.wait_for(reader.ended.wait(), 60)
    assert reader.tokens == whole
    async with _reader(streaming.broker.url) as late:
        assert (await late.resume(request, 290))["request_id"] == request
        assert [token for frame in late.frames for token in frame.tokens] == whole[290:]
        assert late.frames[-1].usage is not None
        assert late.frames[-1].usage.completion_tokens == 300
    async with httpx.AsyncClient(timeout=60) as http:
        over_http = await http.get(f"{one.url}/v1/streams/{request}")
    assert over_http.text.endswith(f"data: [DONE]\nid: {request}:done\n\n")


async def test_whoever_is_asked_ends_a_request_for_all_its_readers(
    streaming: Stack, reader: Reader, streaming_registry: Registry
) -> None:
    with streaming.latch.at(FEW):
        request = await reader.begin()
        await eventually(lambda: reader.frames)
        assert await reader.told("cancel", request_id=request) == {"request_id": request}
        await asyncio.wait_for(reader.ended.wait(), 60)
    assert reader.frames[-1].error == "the stream was cancelled"
    assert await finish(streaming_registry, request) is Finish.CANCELLED
    for subject in ("cancel", "resume"):
        async with asyncio.timeout(60):  # for seconds after the broker was away, the stream may be unrecorded
            while "no such stream" not in (await reader.told(subject, request_id=request)).get("error", {}).get(
                "message", ""
            ):
                await asyncio.sleep(0.2)


async def test_deadlines_and_drafts_are_those_of_http(one: Gateway, reader: Reader) -> None:
    long: dict[str, Any] = {"prompt": "def f(" * 300, "max_tokens": CONTEXT // 2, "ignore_eos": True, "ttft_ms": 1}
    refused = (await reader.told("generate", **long))["error"]
    async with httpx.AsyncClient(timeout=60) as http:
        told = (await http.post(f"{one.url}/v1/completions", json=long)).json()["error"]
    assert refused["code"] == told["code"] == "deadline_unmeetable"
    assert refused["param"] == told["param"] == "ttft_ms"
    await reader.begin(max_tokens=30, return_drafts=True, speculation="off")
    await asyncio.wait_for(reader.ended.wait(), 60)
    drafts = [draft.first_index for frame in reader.frames for draft in frame.drafts or []]
    assert drafts == list(range(30))


async def test_an_answer_that_is_late_ends_for_whoever_reads_it(streaming: Stack, one: Gateway, reader: Reader) -> None:
    await answers_seem_short(one.url)
    endless = {"stop": ["nobody says this"], "timeout_ms": SOON_MS}
    with streaming.latch.at(FEW):
        request = await reader.begin(**endless)
        await asyncio.wait_for(reader.ended.wait(), 60)
    last = reader.frames[-1]
    assert last.finish is Finish.TIMEOUT
    assert last.error in ("the answer did not end in time", "the answer did not end within timeout_ms")
    assert reader.tokens
    async with _reader(streaming.broker.url) as late:
        await late.resume(request, 0)
        assert (late.frames[-1].finish, late.tokens[:10]) == (Finish.TIMEOUT, reader.tokens[:10])


async def test_a_name_is_taken_once_and_free_again_if_nothing_came_of_it(reader: Reader) -> None:
    name = token_hex(8)
    bad = await reader.told("generate", request_id=name, **ASKED | {"prompt": [10**6]})
    assert "outside the vocabulary" in bad["error"]["message"]
    first = await reader.told("generate", request_id=name, **ASKED | {"max_tokens": 2})
    assert first["request_id"].endswith(f"-{name}")
    again = await reader.ask("generate", request_id=name, **ASKED)
    assert again.headers is not None
    assert again.headers["Nats-Service-Error-Code"] == "409"
    assert json.loads(again.data)["error"]["param"] == "request_id"


@pytest.mark.parametrize(
    ("subject", "body", "code", "message"),
    [
        ("generate", {"prompt": "a", "temperature": -1}, "400", "temperature must be"),
        ("generate", {"prompt": "a", "stream": False}, "400", "every answer is a stream"),
        ("generate", {"prompt": "a", "request_id": "a-b"}, "400", "request_id must be"),
        ("generate.other", {"prompt": "a", "model": MODEL}, "400", "model is another than other"),
        ("generate.ot.her", {"prompt": "a"}, "404", "the model 'ot.her' does not exist"),
        ("generate", {"promt": "a"}, "400", "did you mean prompt?"),
        ("cancel", {"request_id": "*"}, "404", "no such stream"),
        ("cancel", {}, "400", "request_id is required"),
        ("resume", {"request_id": "a", "last": 1}, "400", "last is no parameter"),
        ("generate", {"prompt": "a", "timeout_s": 0}, "400", "timeout_s must be a number of seconds above 0"),
    ],
)
async def test_an_error_is_openais_and_stands_in_the_headers_of_the_protocol(
    reader: Reader, subject: str, body: dict[str, Any], code: str, message: str
) -> None:
    answer = await reader.ask(subject, **body)
    assert answer.headers is not None
    assert answer.headers["Nats-Service-Error-Code"] == code
    error = json.loads(answer.data)["error"]
    assert message in error["message"]
    assert answer.headers["Nats-Service-Error"] == error["message"]


async def test_what_had_no_effect_is_named(reader: Reader) -> None:
    answer = await reader.ask("generate", **ASKED | {"max_tokens": 2, "keep_alive": 1, "num_ctx": 2})
    assert answer.headers is not None
    assert json.loads(answer.data)["ignored"] == ["keep_alive", "num_ctx"]
    assert answer.headers["x-outrider-ignored"] == "keep_alive, num_ctx"


async def test_what_is_no_json_object_is_refused(reader: Reader) -> None:
    for data in (b"{", b"[]", b"\xff"):
        answer = await reader.client.request("outrider.v1.generate", data, timeout=30)
        assert "JSON" in json.loads(answer.data)["error"]["message"]


async def _once_certain(reader: Reader, subject: str, request: str) -> str:
    """The refusal once the gateway is certain: one that has just joined calls no stream unknown."""
    async with asyncio.timeout(60):
        while True:
            message = str((await reader.told(subject, request_id=request))["error"]["message"])
            if "records may be on their way" not in message:
                return message
            await asyncio.sleep(0.2)


async def test_keys_and_limits_are_those_of_http(shared: Stack, urls: list[str], tenant_store: TenantStore) -> None:
    limits = Limits(concurrent_streams=1, tokens_per_day=100_000)
    _, key = await tenant_store.key(limits)
    _, narrow = await tenant_store.key(limits, own=Limits(networks=("127.0.0.0/8",)))
    async with _reader(shared.broker.url, key) as keyed:
        bare = await Reader(keyed.client).ask("hello")
        assert json.loads(bare.data)["error"]["code"] == "invalid_api_key"
        assert bare.headers is not None
        assert (bare.headers["Nats-Service-Error-Code"], bare.headers["www-authenticate"]) == ("401", "Bearer")
        elsewhere = await Reader(keyed.client, narrow).told("hello")
        assert elsewhere["error"]["message"] == "this key may not be used from an unknown address"
        assert (await keyed.told("hello"))["tenant"] == tenant_store.tenant
        with shared.latch.at(FEW):
            request = await keyed.begin(max_tokens=CONTEXT - 100)
            await eventually(lambda: keyed.frames)
            tenant_store.tenant += "-other"
            other = Reader(keyed.client, (await tenant_store.key())[1])
            for subject in ("resume", "cancel"):
                assert "no such stream" in await _once_certain(other, subject, request)
            mine = await other.told("generate", request_id=request.partition("-")[2], **ASKED | {"max_tokens": 2})
            assert mine["request_id"] != request
            assert mine["subject"].startswith(f"tok.{tenant_store.tenant}.")
            refused = await keyed.ask("generate", **ASKED)
            assert refused.headers is not None
            assert refused.headers["Nats-Service-Error-Code"] == "429"
            assert json.loads(refused.data)["error"]["code"] == "rate_limit_exceeded"
            with pytest.raises(openai.RateLimitError):
                await complete(urls[0], key)
            await keyed.told("cancel", request_id=request)
        async with asyncio.timeout(60):
            while (answer := await keyed.ask("generate", **ASKED | {"max_tokens": 2})).headers is None or (
                "retry-after" in answer.headers
            ):
                await asyncio.sleep(0.1)
        charged = 100_000 - int(answer.headers["x-ratelimit-remaining-tokens"])
        assert len(keyed.tokens) < charged < CONTEXT - 100


async def test_a_gateway_that_ends_says_so_and_another_goes_on(streaming: Stack, one: Gateway, reader: Reader) -> None:
    whole = (await _whole(one))["outrider"]["tokens"]
    leaving = streaming.add("gateway", port=hold_port(), instance="leaving", drain_s=0.3)
    await asyncio.to_thread(leaving.wait_ready)
    with streaming.latch.at(FEW):
        while (told := await reader.told("generate", **ASKED))["gateway"] != "leaving":
            await reader.told("cancel", request_id=told["request_id"])
        await reader.client.subscribe(told["subject"], cb=reader._take)
        leaving.terminate()
        await eventually(lambda: any(frame.error for frame in reader.frames))
    assert {frame.error for frame in reader.frames} - {None} == {"the gateway is shutting down"}
    async with _reader(streaming.broker.url) as after:
        await after.resume(told["request_id"], 0)
    assert after.tokens == whole


async def test_what_takes_longer_than_it_may_is_ended_for_all_readers(
    streaming: Stack, reader: Reader, streaming_registry: Registry
) -> None:
    with streaming.latch.at(FEW):
        request = await reader.begin(timeout_s=0.3)
        await asyncio.wait_for(reader.ended.wait(), 60)
    assert reader.frames[-1].error == "the request was ended: it took longer than 0.3 s"
    assert await finish(streaming_registry, request) is Finish.CANCELLED


async def test_json_that_is_too_deep_or_says_a_thing_twice_is_refused(reader: Reader) -> None:
    for subject, text in (
        ("generate", '{"prompt": ' + "[" * 1000 + "]" * 1000 + "}"),
        ("resume", "[" * 2000),
        ("cancel", '{"request_id": ' + '{"a": ' * 1000 + "1" + "}" * 1001),
    ):
        answer = await reader.client.request(f"outrider.v1.{subject}", text.encode(), timeout=30)
        assert (answer.headers or {})["Nats-Service-Error-Code"] == "400"
        assert "deeper than 100 levels" in json.loads(answer.data)["error"]["message"]
    answer = await reader.client.request("outrider.v1.generate", b'{"prompt": "a", "prompt": "b"}', timeout=30)
    assert json.loads(answer.data)["error"]["param"] == "prompt"
