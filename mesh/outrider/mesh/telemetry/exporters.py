"""Where spans go: to standard output, to a file, or to a collector that speaks OTLP."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter, SpanExportResult
from outrider.mesh.errors import ConfigError
from outrider.mesh.telemetry.line_file import LineFile

_FILE = "file:"


class FileExporter(SpanExporter):
    """Appends each span to ``file`` as one JSON object a line, in OpenTelemetry's own form of a span."""

    def __init__(self, file: LineFile) -> None:
        self._file = file

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Writes ``spans``; those that the file does not take are lost."""
        try:
            self._file.write(deque(span.to_json(indent=None).encode() + b"\n" for span in spans))
        except OSError:
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS


def make_exporter(name: str) -> SpanExporter:
    """The exporter for a value of the setting ``trace_exporter`` other than ``none``.

    Raises:
        ConfigError: the file cannot be written.
    """
    if name == "console":
        return ConsoleSpanExporter()
    if not name.startswith(_FILE):
        return _otlp()
    try:
        return FileExporter(LineFile(name.removeprefix(_FILE)))
    except OSError as error:
        raise ConfigError(f"trace_exporter = {name} cannot be written: {error.strerror}") from None


def _otlp() -> SpanExporter:
    """Reads the variables ``OTEL_EXPORTER_OTLP_*``. Its modules take a while to import, so only its users wait."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()
