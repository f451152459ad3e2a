"""Streams belong to tenants: others cannot find them, and each token of a resumed stream is charged once."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import httpx
import openai
import pytest
from outrider.v1 import inference_pb2 as pb
from outrider.v1.inference_pb2_grpc import InferenceStub
from outrider.wire.frames import Finish, Frame, encode_frame, token_subject
from outrider.wire.tenants import Limits
from outrider_client import NotFoundError
from outrider_client import nats as over_nats

from tests.gateway.raw_streams import RawStream
from tests.gateway.stack import MODEL, Stack
from tests.gateway.tenants import TenantStore, client, complete, wait_charged
from tests.latch import Latch
from tests.security.speaker import Speaker

LENGTH = 150
CUT = 15
DAY = Limits(tokens_per_day=100_000)


async def _ask(method: str, url: str, request: str, key: str = "") -> int:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(timeout=60) as http:
        return (await http.request(method, f"{url}/v1/streams/{request}", headers=headers)).status_code


@pytest.fixture(autouse=True)
async def settled(urls: list[str], tenant_store: TenantStore) -> None:
    """Waits until both gateways answer 404 for an unknown stream: a gateway that has just joined answers 503."""
    _, text = await TenantStore(tenant_store.bucket).key()
    for url in urls:
        while await _ask("GET", url, "unknown", text) != 404:
            await asyncio.sleep(0.1)


def _body(length: int = LENGTH) -> dict[str, Any]:
    return {"max_tokens": length, "return_tokens": True, "stream_options": {"include_usage": True}}


def _total(read: RawStream) -> int:
    usage = read.events[-2].json["usage"]
    assert usage["completion_tokens"] == LENGTH
    return int(usage["total_tokens"])


async def test_a_stream_is_its_tenants_alone(urls: list[str], tenant_store: TenantStore) -> None:
    _, text = await tenant_store.key()
    _, second = await tenant_store.key()
    stranger = TenantStore(tenant_store.bucket)
    _, foreign = await stranger.key()
    made = await RawStream(urls[0], text).begin(max_tokens=5)
    for method in ("GET", "DELETE"):
        assert await _ask(method, urls[1], made.request) == 401
        assert await _ask(method, urls[1], made.request, foreign) == 404
    assert (await RawStream(urls[1], second).resume(made.request)).events == made.events
    _, narrow = await tenant_store.key(own=Limits(models=("other",)))
    assert await _ask("GET", urls[1], made.request, narrow) == 404
    assert await _ask("DELETE", urls[1], made.request, text) == 204
    assert await _ask("GET", urls[0], made.request, text) == 404


async def test_a_running_stream_is_hidden_from_other_tenants_at_every_api(
    shared: Stack, shared_halted: Latch, urls: list[str], keyed_grpc: str, tenant_store: TenantStore
) -> None:
    shared_halted.set(2 * CUT)
    _, own = await tenant_store.key()
    stranger = TenantStore(tenant_store.bucket)
    _, foreign = await stranger.key()
    begun = await RawStream(urls[0], own).begin(enough=CUT, stay=True, **_body(4 * CUT))
    asked, metadata = {"request_id": begun.request}, (("authorization", f"Bearer {foreign}"),)
    async with grpc.aio.insecure_channel(keyed_grpc) as channel:
        stub = InferenceStub(channel)
        resumed = stub.Resume(pb.ResumeRequest(**asked), metadata=metadata)
        cancelled = stub.Cancel(pb.CancelGenerationRequest(**asked), metadata=metadata)
        assert {await resumed.code(), await cancelled.code()} == {grpc.StatusCode.NOT_FOUND}
    async with over_nats.AsyncClient(shared.broker.url, api_key=foreign) as over:
        with pytest.raises(NotFoundError):
            await over.cancel(begun.request)
        with pytest.raises(NotFoundError):
            [chunk async for chunk in over.resume(begun.request)]
    subject, port = token_subject(tenant_store.tenant, begun.request), shared.broker.port
    speaker = await Speaker.join(port, key=foreign)
    assert await speaker.may_subscribe(token_subject(stranger.tenant, begun.request))
    assert not await speaker.may_subscribe(subject)
    forged = Frame(begun.request, 2 * CUT, [1], ["forged"], [""], Finish.STOP)
    assert not await speaker.may_publish(subject, encode_frame(forged))
    await speaker.leave()
    shared_halted.set(4 * CUT)
    rest = await RawStream(urls[1], own).resume(begun.request)
    assert "forged" not in "".join(str(event.data) for event in rest.events)
    assert rest.events[-2].json["usage"]["completion_tokens"] == 4 * CUT


@pytest.mark.parametrize(("stay", "place"), [(False, 1), (True, 0), (True, 1)])
async def test_a_stream_that_is_left_and_resumed_is_charged_as_one_that_was_not(
    shared: Stack, urls: list[str], tenant_store: TenantStore, stay: bool, place: int
) -> None:
    _, text = await tenant_store.key(DAY)
    begun = await RawStream(urls[0], text).begin(enough=CUT, stay=stay, **_body())
    rest = await RawStream(urls[place], text).resume(begun.request, begun.last)
    again = await RawStream(urls[0], text).resume(begun.request)
    assert len(again.events) == len(begun.events + rest.events)
    await wait_charged(shared, tenant_store.tenant, _total(rest))


async def test_two_readers_of_one_stream_are_charged_together_what_one_would_be(
    shared: Stack, urls: list[str], tenant_store: TenantStore
) -> None:
    _, text = await tenant_store.key(DAY)
    first = RawStream(urls[0], text)
    reading = asyncio.create_task(first.begin(n=2, **_body()))
    while len(first.events) < CUT:
        await asyncio.sleep(0.01)
    second = await RawStream(urls[1], text).resume(first.request)
    await reading
    usage = second.events[-2].json["usage"]
    assert usage["completion_tokens"] == 2 * LENGTH
    await wait_charged(shared, tenant_store.tenant, usage["total_tokens"])


async def test_what_lingers_holds_its_place_until_another_gateway_takes_it(
    shared: Stack, shared_halted: Latch, urls: list[str], tenant_store: TenantStore
) -> None:
    shared_halted.set(2 * CUT)
    _, text = await tenant_store.key(Limits(concurrent_streams=1))
    begun = await RawStream(urls[0], text).begin(enough=CUT, stay=True, **_body())
    for url in urls:
        with pytest.raises(openai.RateLimitError, match="concurrent streams"):
            await complete(url, text)
    rest = await RawStream(urls[1], text).resume(begun.request, begun.last, enough=CUT)
    assert [event.id for event in rest.events] == [f"{begun.request}:{CUT + place}" for place in range(1, CUT + 1)]
    assert await _ask("DELETE", urls[0], begun.request, text) == 204
    async with asyncio.timeout(60):
        while not await _served(urls[1], text):
            await asyncio.sleep(0.1)


async def test_a_background_response_is_its_tenants_alone_and_paid_once(
    shared: Stack, urls: list[str], tenant_store: TenantStore
) -> None:
    _, text = await tenant_store.key(DAY)
    _, foreign = await TenantStore(tenant_store.bucket).key()
    asked: Any = {"model": MODEL, "input": "a", "max_output_tokens": LENGTH, "extra_body": {"ignore_eos": True}}
    async with client(urls[0], text) as one, client(urls[1], text) as other, client(urls[1], foreign) as stranger:
        made = await one.responses.create(**asked, background=True)
        for refused in (stranger.responses.retrieve, stranger.responses.cancel, stranger.responses.delete):
            with pytest.raises(openai.NotFoundError):
                await refused(made.id)
        with pytest.raises(openai.BadRequestError) as wrong:
            await stranger.responses.create(**asked, previous_response_id=made.id)
        assert wrong.value.param == "previous_response_id"
        told = [event async for event in await other.responses.retrieve(made.id, stream=True)]
        whole = await one.responses.retrieve(made.id)
    assert told[-1].type == "response.incomplete"
    assert told[-1].response == whole
    assert whole.usage is not None
    assert whole.usage.output_tokens == LENGTH
    await wait_charged(shared, tenant_store.tenant, whole.usage.total_tokens)


async def test_a_stream_that_its_tenant_has_no_tokens_for_is_not_generated_on(
    shared: Stack, urls: list[str], tenant_store: TenantStore
) -> None:
    _, text = await tenant_store.key(Limits(tokens_per_day=LENGTH + 50))
    begun = await RawStream(urls[0], text).begin(enough=CUT, **_body())
    async with asyncio.timeout(60):
        while not await _served(urls[0], text, max_tokens=80, extra_body={"ignore_eos": True}):
            await asyncio.sleep(0.1)
    for url in urls:
        assert await _ask("GET", url, begun.request, text) == 429


async def _served(url: str, key: str, **more: Any) -> bool:
    try:
        await complete(url, key, **more)
    except openai.RateLimitError:
        return False
    return True
