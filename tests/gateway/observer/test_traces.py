"""One trace through all services, which run in this process: gateway, tokenizer, verifier and proposer."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import nats
import pytest
import pytest_asyncio
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from outrider.benches.verifier.always import AlwaysAsking
from outrider.gateway.service import GatewayService
from outrider.gateway.settings import GatewaySettings
from outrider.mesh.rpc import close_channels, stub
from outrider.mesh.telemetry import start_tracing
from outrider.mesh.telemetry.chained.reader import ChainReader
from outrider.proposer.service import ProposerService
from outrider.proposer.settings import ProposerSettings
from outrider.tokenizer.service import TokenizerService
from outrider.tokenizer.settings import TokenizerSettings
from outrider.v1 import sampling_pb2
from outrider.v1 import verifier_pb2 as pb
from outrider.v1.verifier_pb2_grpc import VerifierStub
from outrider.verifier.settings import VerifierSettings
from outrider.wire.ids import pack_ids

from tests.gateway.in_process import serving
from tests.gateway.stack import MODEL
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
SECRET = "a secret of nobody"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
"""A client's own trace."""


class Here:
    """A mesh in this process, and its spans."""

    def __init__(self, spans: InMemorySpanExporter, usage: Path) -> None:
        self._spans, self.usage_file = spans, usage
        self._old: set[int] = set()
        self.url, self.verifier, self.nats_url = "", "", ""

    async def trace(self, root: str) -> Trace:
        """The spans of the one trace that has ``root``, once it is whole; they are then forgotten."""
        await eventually(lambda: Trace(self._of(root)).whole)
        found = Trace(self._of(root))
        self.forget()
        return found

    def finished(self) -> Sequence[ReadableSpan]:
        """All spans of traces that began since the last test."""
        return [span for span in self._spans.get_finished_spans() if span.context.trace_id not in self._old]

    def forget(self) -> None:
        """Forgets them, and what follows of their traces."""
        self._old |= {span.context.trace_id for span in self._spans.get_finished_spans()}
        self._spans.clear()

    def _of(self, root: str) -> list[ReadableSpan]:
        spans = self._spans.get_finished_spans()
        traces = {span.context.trace_id for span in spans if span.name == root}
        return [span for span in spans if traces == {span.context.trace_id}]

    async def usage(self, request: str) -> dict[str, Any]:
        """The line of a request in the usage log."""
        await eventually(lambda: request in self.usage_file.read_text())
        (line,) = (line for line in self.usage_file.read_text().splitlines() if request in line)
        return json.loads(line)


class Trace:
    """The spans of one trace."""

    def __init__(self, spans: Sequence[ReadableSpan]) -> None:
        self.spans = spans
        self._by_id = {span.context.span_id: span for span in spans}

    @property
    def whole(self) -> bool:
        """Whether the spans that end last are there, and every frame was received."""
        counts = Counter(span.name for span in self.spans)
        return (
            counts["generate"] == counts["/outrider.v1.Verifier/Submit"] > 0
            and counts["publish frames"] == counts["receive frames"]
            and counts["draft"] > 0
        )

    def path(self, name: str) -> list[str]:
        """The names from the root to the first span of that ``name``."""
        return self.way(next(span for span in self.spans if span.name == name))

    def way(self, span: ReadableSpan) -> list[str]:
        """The names from the root to ``span``."""
        above = self._by_id.get(span.parent.span_id) if span.parent is not None else None
        return [*(self.way(above) if above is not None else []), span.name]

    def all(self, name: str) -> list[ReadableSpan]:
        """The spans of that ``name``, in the order of their beginnings."""
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.start_time or 0)

    def attributes(self, name: str) -> dict[str, Any]:
        """The attributes of the only span of that ``name``."""
        (span,) = self.all(name)
        return dict(span.attributes or {})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(shared_nats: str, directory: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Here]:
    exporter, usage = InMemorySpanExporter(), tmp_path_factory.mktemp("usage") / "usage.jsonl"
    telemetry = start_tracing("test", "test-1", exporter)
    made = Here(exporter, usage)
    common: dict[str, Any] = {"nats_url": shared_nats}
    model = common | {"model": str(directory)}
    async with AsyncExitStack() as services:
        services.push_async_callback(close_channels)
        await services.enter_async_context(serving(TokenizerService, TokenizerSettings(served_name=MODEL, **model)))
        settings = VerifierSettings(served_name=MODEL, drafters=[], pinned_share=0, page_size=8, **model)
        verifier = await services.enter_async_context(serving(AlwaysAsking, settings))
        await services.enter_async_context(serving(ProposerService, ProposerSettings(drafter="suffix", **model)))
        settings = GatewaySettings(port=0, auth="none", usage_log=str(usage), **common)
        gateway = await services.enter_async_context(serving(GatewayService, settings))
        made.nats_url, made.verifier = shared_nats, verifier.address
        (member,) = await gateway.wait_for("gateway", bool, 60)
        made.url = f"http://127.0.0.1:{member.status['http_port']}"
        await gateway.wait_for("verifier", bool, 60)
        await gateway.wait_for("tokenizer", bool, 60)
        yield made
    telemetry.close()


@pytest.fixture(autouse=True)
def forgotten(here: Here) -> Iterator[None]:
    yield
    here.forget()


async def test_a_trace_goes_on_from_http_to_every_step_and_back_to_the_reader(here: Here) -> None:
    body = {"model": MODEL, "prompt": SECRET, "max_tokens": 12, "temperature": 0.5, "seed": 7, "stream": True}
    async with httpx.AsyncClient(timeout=60) as http:
        response = await http.post(f"{here.url}/v1/completions", json=body | {"ignore_eos": True}, headers=CALLER)
    call, generation = "POST /v1/completions", f"text_completion {MODEL}"
    trace = await here.trace(generation)
    assert {f"{span.context.trace_id:032x}" for span in trace.spans} == {TRACE}
    submitted = [call, generation, "/outrider.v1.Verifier/Submit"]
    assert trace.path("/outrider.v1.Tokenizer/Encode") == [call, generation, "/outrider.v1.Tokenizer/Encode"]
    assert trace.path("queue") == [*submitted, "generate", "queue"]
    assert trace.path("draft") == [*submitted, "draft"]
    assert trace.way(trace.all("step")[0]) == [*submitted, "generate", "prefill", "step"]
    last = trace.all("receive frames")[-1]
    assert trace.way(last) == [*submitted, "generate", "decode", "step", "publish frames", "receive frames"]
    told = trace.attributes(generation)
    assert told.pop("gen_ai.response.id") == response.headers["x-request-id"]
    assert (told["gen_ai.operation.name"], told["gen_ai.request.model"]) == ("text_completion", MODEL)
    assert (told["gen_ai.request.temperature"], told["gen_ai.request.max_tokens"]) == (0.5, 12)
    assert (told["gen_ai.usage.output_tokens"], told["gen_ai.response.finish_reasons"]) == (12, ("length",))
    assert sum(step.attributes["outrider.tokens"] for step in trace.all("step")) == 12
    assert SECRET not in "".join(span.to_json() for span in trace.spans)


async def test_each_choice_of_a_chat_has_its_own_generation_inside_the_span_of_the_request(here: Here) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": SECRET}], "max_tokens": 5, "n": 2}
    async with httpx.AsyncClient(timeout=60) as http:
        await http.post(f"{here.url}/v1/chat/completions", json=body | {"ignore_eos": True, "seed": 3})
    trace = await here.trace(f"chat {MODEL}")
    assert [trace.way(span)[:2] for span in trace.all("generate")] == [
        ["POST /v1/chat/completions", f"chat {MODEL}"]
    ] * 2
    assert trace.attributes(f"chat {MODEL}")["gen_ai.usage.output_tokens"] == 10


async def test_a_probe_begins_no_trace_and_a_refused_request_has_a_failed_one(here: Here) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        assert (await http.get(f"{here.url}/readyz")).status_code == 200
        body = {"model": MODEL, "prompt": SECRET, "stop_token_ids": [999_999]}
        assert (await http.post(f"{here.url}/v1/completions", json=body)).status_code == 400
        assert (await http.post(f"{here.url}/v1/completions", json=body | {"model": SECRET})).status_code == 404
    await eventually(lambda: Counter(span.name for span in here.finished())["POST /v1/completions"] == 2)
    trace = Trace(here.finished())
    assert {trace.way(span)[0] for span in trace.spans} == {"POST /v1/completions"}
    assert SECRET not in "".join(span.to_json() for span in trace.spans)
    assert trace.attributes(f"text_completion {MODEL}")["error.type"] == "InvalidRequest"
    assert trace.attributes("text_completion")["error.type"] == "UnknownModel"
    statuses = [span.attributes["http.response.status_code"] for span in trace.all("POST /v1/completions")]
    assert statuses == [400, 404]


async def test_the_nats_api_goes_on_with_a_trace(here: Here) -> None:
    client = await nats.connect(here.nats_url)
    body = json.dumps({"model": MODEL, "prompt": SECRET, "max_tokens": 5, "ignore_eos": True}).encode()
    answer = json.loads((await client.request("outrider.v1.generate", body, timeout=30, headers=CALLER)).data)
    await client.close()
    trace = await here.trace(f"text_completion {MODEL}")
    assert trace.path("generate")[:2] == ["NATS generate", f"text_completion {MODEL}"]
    assert {f"{span.context.trace_id:032x}" for span in trace.spans} == {TRACE}
    line = await here.usage(answer["request_id"])
    assert (line["door"], line["output_tokens"], line["outcome"]) == ("nats", 5, "done")


async def test_a_submission_without_a_gateway_goes_on_with_its_callers_trace_and_begins_none(here: Here) -> None:
    here.forget()
    sampling = sampling_pb2.SamplingParams(max_tokens=3, ignore_eos=True)
    verifier = stub(VerifierStub, here.verifier)
    for name, metadata in (("alone", None), ("traced", [("traceparent", f"00-{'ab' * 16}-{'cd' * 8}-01")])):
        request = pb.SubmitRequest(request_id=name, tenant="t", prompt=pack_ids([1, 2, 3]), sampling=sampling)
        await verifier.Submit(request, metadata=metadata)
        async for _ in verifier.Follow(pb.FollowRequest(request_id=name)):
            pass
    await eventually(lambda: "generate" in {span.name for span in here.finished()})
    assert {span.context.trace_id for span in here.finished()} == {int("ab" * 16, 16)}


async def test_a_line_of_usage_tells_who_used_how_much_and_never_the_text(here: Here) -> None:
    body = {"model": MODEL, "prompt": SECRET, "max_tokens": 4, "n": 2, "ignore_eos": True}
    async with httpx.AsyncClient(timeout=60) as http:
        answers = await asyncio.gather(*(http.post(f"{here.url}/v1/completions", json=body) for _ in range(3)))
    lines = [await here.usage(answer.headers["x-request-id"]) for answer in answers]
    for line, answer in zip(lines, answers, strict=True):
        usage = answer.json()["usage"]
        assert (line["input_tokens"], line["output_tokens"]) == (usage["prompt_tokens"], usage["completion_tokens"])
        assert (line["tenant"], line["door"], line["address"]) == ("default", "http", "127.0.0.1")
        assert (line["outcome"], line["finish_reasons"], line["choices"]) == ("done", ["length"] * 2, 2)
    text = here.usage_file.read_bytes()
    assert SECRET.encode() not in text
    ChainReader().read("usage", text.splitlines())
