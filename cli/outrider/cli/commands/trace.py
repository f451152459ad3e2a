"""The command `outrider trace`: prints one trace as a tree, from files that `trace_exporter = file:PATH` wrote."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from outrider.mesh.errors import ConfigError

_SHOWN = ("gen_ai.usage.", "gen_ai.response.finish_reasons", "http.response.status_code", "error.type", "outrider.")
"""Beginnings of the attributes that are printed."""
_HEAD = f"{'starts':>10}  {'takes':>10}  {'process':<24}  span"


class _Context(msgspec.Struct):
    trace_id: str
    span_id: str


class _Resource(msgspec.Struct):
    attributes: dict[str, Any]


class Span(msgspec.Struct):
    """A span as a file has it, in OpenTelemetry's own JSON."""

    name: str
    context: _Context
    parent_id: str | None
    start_time: datetime
    end_time: datetime
    attributes: dict[str, Any]
    resource: _Resource

    @property
    def process(self) -> str:
        """The instance name of the process that the span is from."""
        return str(self.resource.attributes.get("service.instance.id", ""))

    @property
    def details(self) -> str:
        """The attributes that are printed."""
        shown = ((key, value) for key, value in self.attributes.items() if key.startswith(_SHOWN))
        return " ".join(f"{_short(key)}={_value(value)}" for key, value in shown)


def run(files: Sequence[Path], wanted: str) -> int:
    """Prints the trace whose id, or one of whose requests' ids, begins with ``wanted``; the latest one if empty."""
    try:
        trace = _choose(_read(files), wanted)
    except ConfigError as error:
        print(f"outrider: {error}", file=sys.stderr)
        return error.exit_code
    for line in lines_of(trace):
        print(line)
    return 0


def lines_of(spans: Sequence[Span]) -> Iterator[str]:
    """The lines that show the ``spans`` of one trace: a span below the span that it is in, times from the first one."""
    began, ended = min(span.start_time for span in spans), max(span.end_time for span in spans)
    processes = {span.process for span in spans}
    yield (
        f"trace {spans[0].context.trace_id.removeprefix('0x')} of {began.isoformat(timespec='milliseconds')}: "
        f"{len(spans)} spans of {len(processes)} processes, {_ms(ended - began)}"
    )
    yield _HEAD
    inside: dict[str | None, list[Span]] = defaultdict(list)
    known = {span.context.span_id for span in spans}
    for span in sorted(spans, key=lambda span: span.start_time):
        inside[span.parent_id if span.parent_id in known else None].append(span)
    yield from _branch(inside, None, began, 0)


def _branch(inside: dict[str | None, list[Span]], parent: str | None, began: datetime, depth: int) -> Iterator[str]:
    for span in inside.get(parent, []):
        starts, takes = _ms(span.start_time - began), _ms(span.end_time - span.start_time)
        name = f"{'  ' * depth}{span.name}"
        yield f"{starts:>10}  {takes:>10}  {span.process:<24}  {name}  {span.details}".rstrip()
        yield from _branch(inside, span.context.span_id, began, depth + 1)


def _read(files: Sequence[Path]) -> dict[str, list[Span]]:
    """The spans of all files by trace, in the order in which traces first appear."""
    decode = msgspec.json.Decoder(Span).decode
    traces: dict[str, list[Span]] = defaultdict(list)
    for file in files:
        try:
            for line in file.read_bytes().splitlines():
                span = decode(line)
                traces[span.context.trace_id].append(span)
        except OSError as error:
            raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
        except msgspec.DecodeError:
            raise ConfigError(f"{file} is no file of spans: set trace_exporter = file:PATH") from None
    return traces


def _choose(traces: dict[str, list[Span]], wanted: str) -> list[Span]:
    if not wanted and traces:
        return max(traces.values(), key=lambda spans: max(span.end_time for span in spans))
    for trace, spans in traces.items():
        requests = [str(span.attributes.get("gen_ai.response.id", "")) for span in spans]
        if wanted and any(each.startswith(wanted) for each in [trace.removeprefix("0x"), *requests]):
            return spans
    raise ConfigError(f"the files have no trace{f' {wanted}' if wanted else ''}: spans are written every five seconds")


def _short(key: str) -> str:
    return key.removeprefix("outrider.").removeprefix("gen_ai.").removeprefix("usage.").removeprefix("response.")


def _value(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _ms(time: timedelta) -> str:
    return f"{time.total_seconds() * 1e3:.1f} ms"
