"""Streams that outlive their connection, their gateway, their verifier and the broker, equal to the byte."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from outrider.mesh.registry import Registry
from outrider.wire.frames import Finish

from tests.gateway.raw_streams import RawStream, without_variable_parts
from tests.gateway.stack import Stack
from tests.gateway.streaming import Gateway, finish, holder, once_certain, spare
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(300)  # whichever test comes first waits for a mesh to start

LENGTH = 400
CUT = 40


@pytest.fixture(scope="module")
def whole(other: Gateway) -> RawStream:
    """The stream of a mesh without faults."""
    return asyncio.run(RawStream(other.url).begin(**_asked(LENGTH)))


async def _begun(gateway: Gateway, *, stay: bool = True) -> RawStream:
    """The same stream, with the connection dropped in its middle."""
    return await RawStream(gateway.url).begin(enough=CUT, stay=stay, **_asked(LENGTH))


def _asked(length: int) -> dict[str, Any]:
    return {"max_tokens": length, "return_tokens": True, "stream_options": {"include_usage": True}}


def _agree(begun: RawStream, rest: RawStream, whole: RawStream) -> None:
    together = without_variable_parts(begun.events, begun.request) + without_variable_parts(rest.events, begun.request)
    assert together == without_variable_parts(whole.events, whole.request)


async def test_every_id_leads_to_the_very_bytes_behind_it_on_any_gateway(
    one: Gateway, other: Gateway, whole: RawStream
) -> None:
    assert len(whole.events) == LENGTH + 2
    for place in (0, 1, CUT, LENGTH - 1, LENGTH):
        rest = await RawStream(one.url).resume(whole.request, whole.events[place].id)
        assert rest.events == whole.events[place + 1 :]
    assert (await RawStream(one.url).resume(whole.request)).events == whole.events
    async with httpx.AsyncClient() as http:
        path = f"{other.url}/v1/streams/{whole.request}?last_event_id={whole.last}"
        assert (await http.get(path)).status_code == 204


async def test_a_reader_that_drops_its_connection_goes_on_at_another_gateway(
    one: Gateway, other: Gateway, whole: RawStream
) -> None:
    begun = await _begun(one)
    _agree(begun, await RawStream(other.url).resume(begun.request, begun.last), whole)


async def test_a_stream_that_was_given_up_is_generated_on_when_its_reader_returns(
    streaming: Stack, one: Gateway, other: Gateway, whole: RawStream, streaming_registry: Registry
) -> None:
    with streaming.latch.at(CUT):
        begun = await _begun(one, stay=False)
        assert await finish(streaming_registry, begun.request) is Finish.CANCELLED
    rest = await RawStream(other.url).resume(begun.request, begun.last)
    assert [each[1] for each in without_variable_parts(rest.events, begun.request)] == [
        each[1] for each in without_variable_parts(whole.events[CUT:], whole.request)
    ]
    texts = [event.json["choices"][0]["text"] for event in begun.events + rest.events[:-2]]
    assert texts == [event.json["choices"][0]["text"] for event in whole.events[:-2]]


async def test_a_killed_gateway_costs_the_connection_and_nothing_else(
    streaming: Stack, other: Gateway, whole: RawStream
) -> None:
    killed = Gateway(streaming)
    await killed.ready()
    submissions = other.count("resumptions_total")
    with streaming.latch.at(CUT):
        begun = await _begun(killed)
        await asyncio.to_thread(killed.process.kill)
    _agree(begun, await RawStream(other.url).resume(begun.request, begun.last), whole)
    assert other.count("resumptions_total") == submissions


async def test_a_gateway_that_is_told_to_go_leaves_its_streams_to_others_and_to_their_verifiers(
    streaming: Stack, other: Gateway, whole: RawStream
) -> None:
    leaving = Gateway(streaming, drain_s=0)
    await leaving.ready()
    submissions, begun = other.count("resumptions_total"), RawStream(leaving.url)
    with streaming.latch.at(CUT):
        reading = asyncio.create_task(begun.begin(**_asked(LENGTH)))
        await eventually(lambda: len(begun.events) >= CUT - 1)
        leaving.process.terminate()
        await reading
        failure, _ = begun.events[-2:]
        del begun.events[-2:]
        assert (failure.json["error"]["message"], failure.id) == ("the gateway is shutting down", begun.last)
        assert await asyncio.to_thread(leaving.process.wait) == 0
    _agree(begun, await RawStream(other.url).resume(begun.request, begun.last), whole)
    assert other.count("resumptions_total") == submissions


async def test_a_gateway_goes_on_when_the_verifier_has_died_with_the_first(
    streaming: Stack, other: Gateway, whole: RawStream, streaming_registry: Registry
) -> None:
    killed = Gateway(streaming)
    await spare(streaming)
    await killed.ready()
    with streaming.latch.at(CUT):
        begun = await _begun(killed)
        dead = await holder(streaming_registry, begun.request)
        verifiers = [each for each in streaming.processes if each.settings.get("instance") == dead]
        for process in [killed.process, *verifiers]:
            process.kill()
    rest = await RawStream(other.url).resume(begun.request, begun.last)
    assert rest.events[-3].json["outrider"]["verifier"] != dead
    assert [event.json["choices"] for event in begun.events + rest.events[:-2]] == [
        event.json["choices"] for event in whole.events[:-2]
    ]
    assert rest.events[-2].json["outrider"]["steps"] == LENGTH


async def test_the_ledger_and_the_log_outlive_the_broker(
    streaming: Stack, one: Gateway, other: Gateway, whole: RawStream
) -> None:
    with streaming.latch.at(CUT):
        begun = await _begun(one)
        streaming.broker.kill()
        streaming.broker.start()
    await eventually(lambda: other.count("streams") >= 0 and _status(other, begun.request) != 503)
    _agree(begun, await RawStream(other.url).resume(begun.request, begun.last), whole)


async def test_choices_are_resumed_each_from_its_own_place(one: Gateway, other: Gateway) -> None:
    made = await RawStream(one.url).begin(chat=True, n=2, max_tokens=20, return_tokens=True)
    for place in (0, 1, 2, 11, 30, 41):
        rest = await RawStream(other.url).resume(made.request, made.events[place].id)
        for choice in range(2):
            told = [
                [e for e in events[:-1] if e.json["choices"][0]["index"] == choice]
                for events in (made.events[: place + 1] + rest.events, made.events)
            ]
            assert [event.data for event in told[0]] == [event.data for event in told[1]]
        assert rest.events[-1] == made.events[-1]


async def test_a_call_of_a_function_is_told_again_in_the_same_pieces(one: Gateway, other: Gateway) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"enum": [{"a": 12345}]}}}
    made = await RawStream(one.url).begin(
        chat=True,
        max_tokens=200,
        ignore_eos=False,
        tools=[tool],
        tool_choice={"type": "function", "function": {"name": "f"}},
    )
    assert made.events[-2].json["choices"][0]["finish_reason"] == "tool_calls"
    for place in range(len(made.events) - 1):
        rest = await RawStream(other.url).resume(made.request, made.events[place].id)
        assert rest.events == made.events[place + 1 :]


@pytest.mark.usefixtures("halted")
async def test_deleting_a_stream_frees_the_verifier_and_ends_it_for_its_readers(
    one: Gateway, other: Gateway, streaming_registry: Registry
) -> None:
    reading = RawStream(one.url)
    task = asyncio.create_task(reading.begin(max_tokens=LENGTH))
    await eventually(lambda: reading.events)
    async with httpx.AsyncClient(base_url=other.url, timeout=30) as http:
        assert (await http.delete(f"/v1/streams/{reading.request}")).status_code == 204
        await task
        assert reading.events[-2].json["error"]["message"] == "the stream was cancelled"
        assert reading.events[-1].data == b"[DONE]"
        assert (await once_certain(http, "GET", f"/v1/streams/{reading.request}")).status_code == 404
        assert (await http.delete(f"/v1/streams/{reading.request}")).status_code == 404
    assert await finish(streaming_registry, reading.request) is Finish.CANCELLED


async def test_what_nobody_comes_back_for_ends(streaming: Stack, streaming_registry: Registry) -> None:
    brief = Gateway(streaming, patience_s=1)
    await brief.ready()
    with streaming.latch.at(CUT):
        left = await _begun(brief)
        assert await finish(streaming_registry, left.request) is Finish.CANCELLED
        orphan = await _begun(brief)
        await asyncio.to_thread(brief.process.kill)
        assert await finish(streaming_registry, orphan.request) is Finish.CANCELLED


@pytest.mark.parametrize(
    ("path", "last", "status", "message"),
    [
        ("unheard-of", "", 404, "there is no such stream"),
        ("*", "", 404, "there is no such stream"),
        ("{id}", "{id}:x", 400, "no id of an event"),
        ("{id}", "other:5", 400, "no id of an event"),
        ("{id}", "{id}:5.6", 400, "a position for each of the 1 choices"),
    ],
)
async def test_what_cannot_be_resumed_is_refused(
    other: Gateway, whole: RawStream, path: str, last: str, status: int, message: str
) -> None:
    async with httpx.AsyncClient(base_url=other.url) as http:
        headers = {"last-event-id": last.format(id=whole.request)} if last else {}
        refused = await once_certain(http, "GET", f"/v1/streams/{path.format(id=whole.request)}", headers=headers)
    assert refused.status_code == status
    assert message in refused.json()["error"]["message"]


@pytest.mark.parametrize(("stream", "wish"), [(False, "continue"), (True, "stay")])
async def test_a_wish_that_cannot_be_honoured_is_refused(other: Gateway, stream: bool, wish: str) -> None:
    async with httpx.AsyncClient(base_url=other.url) as http:
        headers = {"x-outrider-on-disconnect": wish}
        refused = await http.post("/v1/completions", json={"prompt": "a", "stream": stream}, headers=headers)
    assert refused.status_code == 400
    assert refused.json()["error"]["message"]


def _status(gateway: Gateway, request: str) -> int:
    with httpx.stream("GET", f"{gateway.url}/v1/streams/{request}?last_event_id={request}:done") as response:
        return response.status_code


async def test_each_chunk_tells_the_usage_so_far_where_that_is_asked_for_and_again_when_resumed(
    one: Gateway, other: Gateway
) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    for chat in (False, True):
        whole = await RawStream(one.url).begin(
            chat=chat, n=2, max_tokens=12, return_tokens=True, stream_options=options
        )
        *chunks, last = [event.json for event in whole.events[:-1]]
        prompt, had = last["usage"]["prompt_tokens"], [0, 0]
        for chunk in chunks:
            (choice,) = chunk["choices"]
            had[choice["index"]] += len(chunk.get("outrider", {}).get("tokens", ()))
            generated = had[choice["index"]]
            assert chunk["usage"] == {
                "prompt_tokens": prompt,
                "completion_tokens": generated,
                "total_tokens": prompt + generated,
            }
        assert (had, last["usage"]["completion_tokens"], last["choices"]) == ([12, 12], 24, [])
        alone = await RawStream(one.url).begin(chat=chat, max_tokens=12, stream_options=options)
        for place in (0, 1, len(alone.events) // 2, len(alone.events) - 3):
            assert (await RawStream(other.url).resume(alone.request, alone.events[place].id)).events == alone.events[
                place + 1 :
            ]


async def test_usage_so_far_is_told_only_beside_usage(one: Gateway) -> None:
    stream = await RawStream(one.url).begin(max_tokens=3, stream_options={"continuous_usage_stats": True})
    assert all("usage" not in event.json for event in stream.events[:-1])
