"""Logs, metrics and traces."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest
import structlog
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from outrider.mesh.bus import Bus, Message
from outrider.mesh.errors import ConfigError
from outrider.mesh.rpc import Server, close_channels, stub
from outrider.mesh.telemetry import (
    configure_logs,
    continued_span,
    counter,
    current_headers,
    get_logger,
    render,
    span,
    start_tracing,
    tracing,
)
from outrider.v1 import tokenizer_pb2 as pb
from outrider.v1 import tokenizer_pb2_grpc as rpc
from outrider.v1.proposer_pb2 import DraftRequest, DraftResponse
from outrider.v1.proposer_pb2_grpc import ProposerServicer, ProposerStub, add_ProposerServicer_to_server


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    telemetry = start_tracing("test", "test-1", exporter)
    yield exporter
    telemetry.close()


@contextmanager
def captured(form: Literal["json", "console"]) -> Iterator[io.StringIO]:
    """Configures logs as a process does, and yields the text written."""
    root = logging.getLogger()
    before, ours = (root.handlers[:], root.level), structlog.get_config()
    with redirect_stderr(io.StringIO()) as buffer:
        configure_logs("info", form, service="test")
        yield buffer
    structlog.configure(**ours)
    root.handlers[:], root.level = before


@contextmanager
def captured_logs() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """The same as JSON; yields a function that returns the lines so far."""
    with captured("json") as buffer:
        yield lambda: [json.loads(line) for line in buffer.getvalue().splitlines()]


class _Collector(BaseHTTPRequestHandler):
    """Keeps what exporters send."""

    arrived: list[ExportTraceServiceRequest]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.arrived.append(ExportTraceServiceRequest.FromString(_plain(body, self.headers["Content-Encoding"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def _plain(body: bytes, encoding: str | None) -> bytes:
    return gzip.decompress(body) if encoding == "gzip" else body


@contextmanager
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """A collector's URL, and what it has received."""
    arrived: list[ExportTraceServiceRequest] = []
    server = HTTPServer(("127.0.0.1", 0), type("Collector", (_Collector,), {"arrived": arrived}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", arrived
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Relay(rpc.TokenizerServicer, ProposerServicer):
    """Publishes a message on NATS for each call."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def Describe(self, request: Any, context: Any) -> pb.DescribeTokenizerResponse:  # noqa: N802
        self._bus.publish("relay.unary", b"")
        return pb.DescribeTokenizerResponse()

    async def Draft(self, requests: Any, context: Any) -> AsyncIterator[DraftResponse]:  # noqa: N802
        async for _ in requests:
            self._bus.publish("relay.stream", b"")
            yield DraftResponse()


@pytest.fixture
async def address(bus: Bus) -> AsyncIterator[str]:
    """The address of a `Relay`."""
    server, relay = Server(), Relay(bus)
    await server.start()
    rpc.add_TokenizerServicer_to_server(relay, server)
    add_ProposerServicer_to_server(relay, server)
    await server.set_serving(True)
    yield f"127.0.0.1:{server.port}"
    await close_channels()
    await server.stop(0)


@pytest.fixture
async def relay(address: str) -> Any:
    return stub(rpc.TokenizerStub, address)


def by_name(exporter: InMemorySpanExporter, name: str) -> ReadableSpan:
    return next(span for span in exporter.get_finished_spans() if span.name == name)


async def arrival(bus: Bus, subject: str) -> asyncio.Queue[dict[str, str] | None]:
    arrived: asyncio.Queue[dict[str, str] | None] = asyncio.Queue()

    async def note(message: Message) -> None:
        with span("handled"):
            arrived.put_nowait(message.headers)

    await bus.subscribe(subject, note)
    return arrived


async def test_one_trace_goes_through_grpc_and_nats(spans: InMemorySpanExporter, bus: Bus, relay: Any) -> None:
    arrived = await arrival(bus, "relay.unary")
    with span("request") as request:
        await relay.Describe(pb.DescribeTokenizerRequest())
    await arrived.get()
    server, handled = by_name(spans, "/outrider.v1.Tokenizer/Describe"), by_name(spans, "handled")
    trace_id = request.get_span_context().trace_id
    assert server.context.trace_id == handled.context.trace_id == trace_id
    assert server.parent is not None
    assert server.parent.span_id == request.get_span_context().span_id


async def test_one_trace_goes_through_a_grpc_stream(spans: InMemorySpanExporter, bus: Bus, address: str) -> None:
    arrived = await arrival(bus, "relay.stream")
    with span("request") as request:
        call = stub(ProposerStub, address).Draft()
        await call.write(DraftRequest())
        await call.read()
        await call.done_writing()
        await call.read()
    await arrived.get()
    assert by_name(spans, "handled").context.trace_id == request.get_span_context().trace_id


def test_a_trace_goes_on_from_the_headers_of_a_caller(spans: InMemorySpanExporter) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    with continued_span({"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}, "handler"):
        headers = current_headers()
    assert headers is not None
    assert headers["traceparent"].split("-")[1] == trace_id


async def test_a_trace_that_is_not_kept_is_carried_nowhere(bus: Bus, address: str) -> None:
    exporter = InMemorySpanExporter()
    telemetry = start_tracing("test", "test-1", exporter, ratio=0.0)
    arrived = await arrival(bus, "relay.unary")
    caller = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"}
    for headers in ({}, {"traceparent": "rubbish"}, {"traceparent": caller["traceparent"] + "0"}):
        with continued_span(headers, "request") as request:
            assert not request.is_recording()
            assert current_headers() is None
            await stub(rpc.TokenizerStub, address).Describe(pb.DescribeTokenizerRequest())
        assert await arrived.get() is None
    with continued_span({"traceparent": caller["traceparent"] + "1"}, "request") as request:
        await stub(rpc.TokenizerStub, address).Describe(pb.DescribeTokenizerRequest())
    assert (await arrived.get() or {})["traceparent"].split("-")[1] == "0af7651916cd43dd8448eb211c80319c"
    assert request.is_recording() is False  # it has ended
    assert by_name(exporter, "/outrider.v1.Tokenizer/Describe").parent is not None
    telemetry.close()


def test_a_share_of_the_traces_that_begin_here_is_kept() -> None:
    exporter = InMemorySpanExporter()
    telemetry = start_tracing("test", "test-1", exporter, ratio=0.25)
    for _ in range(4000):
        with continued_span(None, "request"):
            pass
    telemetry.close()
    assert 800 < len(exporter.get_finished_spans()) < 1200  # seven standard deviations


def test_a_failure_marks_its_span(spans: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="wrong"), span("failing"):
        raise ValueError("wrong")
    failed = by_name(spans, "failing")
    assert (failed.status.is_ok, failed.status.description) == (False, "ValueError")
    assert "wrong" not in failed.to_json()


async def test_without_an_exporter_nothing_is_carried(bus: Bus, relay: Any) -> None:
    telemetry = start_tracing("test", "test-1", "none")
    arrived = await arrival(bus, "relay.unary")
    with span("request"):
        assert not tracing()
        assert current_headers() is None
        await relay.Describe(pb.DescribeTokenizerRequest())
    assert await arrived.get() is None
    telemetry.close()


def test_spans_go_to_a_collector_and_a_collector_that_is_down_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as (url, arrived):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        telemetry = start_tracing("test", "test-1", "otlp")
        with span("request", attributes={"outrider.steps": 3}):
            pass
        telemetry.close()
        (sent,) = arrived
    (resource,) = sent.resource_spans
    (exported,) = resource.scope_spans[0].spans
    assert (exported.name, exported.attributes[0].value.int_value) == ("request", 3)
    assert "outrider-test" in str(resource.resource)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.1")
    telemetry = start_tracing("test", "test-1", "otlp")
    with captured_logs(), span("request"):
        assert current_headers() is not None
    telemetry.close()
    assert not tracing()


def test_a_file_has_one_span_a_line(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    telemetry = start_tracing("test", "test-1", f"file:{path}")
    with span("outer"), span("inner"):
        pass
    telemetry.close()
    inner, outer = (json.loads(line) for line in path.read_text().splitlines())
    assert (inner["name"], inner["parent_id"]) == ("inner", outer["context"]["span_id"])
    assert outer["resource"]["attributes"]["service.instance.id"] == "test-1"
    with pytest.raises(ConfigError, match="trace_exporter"):
        start_tracing("test", "test-1", "file:/none/spans")


async def test_a_call_in_the_background_begins_no_trace(spans: InMemorySpanExporter, bus: Bus, relay: Any) -> None:
    arrived = await arrival(bus, "relay.unary")
    await relay.Describe(pb.DescribeTokenizerRequest())
    assert await arrived.get() is None
    assert [each.name for each in spans.get_finished_spans()] == ["handled"]


def test_a_log_line_is_one_json_object_with_the_trace(spans: InMemorySpanExporter) -> None:
    with captured_logs() as logs, span("request") as request:
        get_logger("here").info("it happened", number=7)
        (line,) = logs()
    assert line["event"] == "it happened"
    assert (line["level"], line["module"], line["service"], line["number"]) == ("info", "here", "test", 7)
    assert line["trace_id"] == f"{request.get_span_context().trace_id:032x}"


def test_the_text_of_a_request_never_reaches_the_log() -> None:
    with captured_logs() as logs:
        get_logger("here").info("request", prompt="my secret", text="my secret", messages=["my secret"])
        (line,) = logs()
    assert "secret" not in json.dumps(line)
    assert line["prompt"] == "(9 characters)"


def test_libraries_write_to_the_same_log() -> None:
    with captured_logs() as logs:
        logging.getLogger("nats").error("from %s", "nats")
        (line,) = logs()
    assert (line["event"], line["level"], line["logger"]) == ("from nats", "error", "nats")


def test_an_exception_is_part_of_its_line() -> None:
    with captured_logs() as logs:
        try:
            raise ValueError("inside")
        except ValueError:
            get_logger("here").exception("failed")
        (line,) = logs()
    assert "ValueError: inside" in line["exception"]


def test_an_exception_on_the_console_shows_no_variables() -> None:
    with captured("console") as buffer:
        secret = "anybody's text"
        try:
            raise ValueError(len(secret))
        except ValueError:
            get_logger("here").exception("failed")
    assert "ValueError: 14" in buffer.getvalue()
    assert "raise ValueError(len(secret))" in buffer.getvalue()
    assert secret not in buffer.getvalue()


def test_lines_under_the_level_are_not_written() -> None:
    with captured_logs() as logs:
        get_logger("here").debug("quiet")
        assert logs() == []


def test_a_metric_is_rendered_under_our_name() -> None:
    counter("test_things", "Things.", ["kind"]).labels("odd").inc(3)
    assert b'outrider_test_things_total{kind="odd"} 3.0' in render()
