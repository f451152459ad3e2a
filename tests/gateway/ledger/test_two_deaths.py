"""The broker is away, and a gateway dies: verifiers have the records of their streams."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from outrider.gateway.ledger.record import Key
from outrider.gateway.ledger.verifier_records import VerifierRecords
from outrider.mesh.registry import Registry, Times
from outrider.mesh.rpc import channel, close_channels
from outrider.v1 import verifier_pb2 as pb
from outrider.v1.verifier_pb2_grpc import VerifierStub

from tests.gateway.raw_streams import RawStream, without_variable_parts
from tests.gateway.stack import Stack
from tests.gateway.streaming import Gateway, once_certain, spare
from tests.reading import reading
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(300)  # whichever test comes first waits for a mesh to start

ASKED = {"max_tokens": 400, "return_tokens": True, "n": 2}
CUT = 40


async def _orphan(streaming: Stack, other: Gateway) -> tuple[RawStream, RawStream]:
    """A whole stream; and the same stream, begun while the broker is away, at a gateway that is killed half-way."""
    killed = Gateway(streaming)
    await killed.ready()
    await spare(streaming)
    await eventually(lambda: other.count("ledger_failing") == 0)
    whole = await RawStream(other.url).begin(**ASKED)
    await asyncio.to_thread(streaming.broker.kill)
    begun = await RawStream(killed.url).begin(enough=CUT, stay=True, **ASKED)
    await asyncio.to_thread(killed.process.kill)
    return whole, begun


def _choice(raw: RawStream, index: int) -> list[bytes]:
    """The chunks of one choice of a stream."""
    events = [event for event in raw.events[:-1] if event.json["choices"][0]["index"] == index]
    return [data for data, _ in without_variable_parts(events, raw.request)]


def _agree(begun: RawStream, rest: RawStream, whole: RawStream) -> None:
    together = RawStream("")
    together.request, together.events = begun.request, begun.events + rest.events
    for index in range(2):
        assert _choice(together, index) == _choice(whole, index)


async def test_a_reader_finds_the_stream_while_the_broker_is_away(streaming: Stack, other: Gateway) -> None:
    whole, begun = await _orphan(streaming, other)
    try:
        recalls = other.count("recalls_total")
        rest = await RawStream(other.url).resume(begun.request, begun.last)
        _agree(begun, rest, whole)
        assert other.count("recalls_total") > recalls
        again = await RawStream(other.url).resume(begun.request)
        assert sorted(event.data for event in again.events) == sorted(e.data for e in begun.events + rest.events)
        async with httpx.AsyncClient(timeout=30) as http:
            assert (await http.get(f"{other.url}/v1/streams/unheard-of")).status_code == 503
    finally:
        streaming.broker.start()
    await eventually(lambda: other.count("ledger_failing") == 0 and other.count("waiting_records") == 0)
    recalls = other.count("recalls_total")
    later = await RawStream(other.url).resume(begun.request, begun.last)
    assert sorted(event.data for event in later.events) == sorted(event.data for event in rest.events)
    assert other.count("recalls_total") == recalls


async def test_a_reader_finds_the_stream_when_the_broker_is_back(
    streaming: Stack, other: Gateway, streaming_registry: Registry
) -> None:
    whole, begun = await _orphan(streaming, other)
    streaming.broker.start()
    await eventually(lambda: other.count("ledger_failing") == 0)
    rest = await RawStream(other.url).resume(begun.request, begun.last)
    _agree(begun, rest, whole)
    members = await streaming_registry.wait_for("verifier", bool, 10)
    for tenant, known in (("default", True), ("somebody-else", False)):
        message = pb.RecallRequest(tenant=tenant, stream_id=begun.request)
        answers = [await VerifierStub(channel(member.address)).Recall(message) for member in members]
        assert any(answer.requests for answer in answers) is known
    await close_channels()


async def test_a_verifier_that_was_not_heard_of_yet_is_waited_for(streaming: Stack, other: Gateway) -> None:
    _, begun = await _orphan(streaming, other)
    streaming.broker.start()
    await eventually(lambda: other.count("ledger_failing") == 0)
    async with reading(streaming.broker.url, Times(news_s=600)) as fresh:
        assert await VerifierRecords(fresh).find(Key("default", begun.request)) is not None
    async with reading(streaming.broker.url, Times(news_s=0)) as informed:
        await informed.wait_for("verifier", bool, 10)
        assert await VerifierRecords(informed).find(Key("default", "unheard-of")) is None


async def test_a_deleted_stream_is_not_found_at_its_verifier(streaming: Stack, one: Gateway, other: Gateway) -> None:
    await eventually(lambda: other.count("ledger_failing") + one.count("ledger_failing") == 0)
    begun = await RawStream(one.url).begin(enough=CUT, stay=True, **ASKED)
    async with httpx.AsyncClient(timeout=30) as http:
        assert (await http.delete(f"{other.url}/v1/streams/{begun.request}")).status_code == 204
        for gateway in (one, other):
            assert (await once_certain(http, "GET", f"{gateway.url}/v1/streams/{begun.request}")).status_code == 404


async def test_a_stream_may_exist_while_a_verifier_that_may_have_it_is_frozen(streaming: Stack, other: Gateway) -> None:
    await eventually(lambda: other.count("ledger_failing") == 0)
    await spare(streaming)
    verifier = next(process for process in streaming.processes if process.kind == "verifier" and process.alive)
    async with httpx.AsyncClient(base_url=other.url, timeout=30) as http:
        assert (await once_certain(http, "GET", "/v1/streams/unheard-of")).status_code == 404
        verifier.freeze()
        try:
            missed = await http.get("/v1/streams/unheard-of")
        finally:
            verifier.thaw()
        assert (missed.status_code, missed.headers["retry-after"]) == (503, "1")
        assert "does not answer" in missed.text
