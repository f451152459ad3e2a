"""The command `outrider trace`."""

from __future__ import annotations

from pathlib import Path

import pytest
from outrider.cli.commands.trace import run
from outrider.mesh.telemetry import begun_span, span, start_tracing


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with two traces of two processes."""
    path = tmp_path / "spans.jsonl"
    gateway = start_tracing("gateway", "gateway-1", f"file:{path}")
    for request in ("first", "second"):
        with span("POST /v1/completions"), span("chat m", attributes={"gen_ai.response.id": request}) as generation:
            pass
    gateway.close()
    verifier = start_tracing("verifier", "verifier-1", f"file:{path}")
    begun_span("step", generation.get_span_context(), attributes={"outrider.tokens": 3}).end()
    verifier.close()
    return path


def test_the_latest_trace_is_a_tree_over_all_processes(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([file], "") == 0
    title, _, *spans = capsys.readouterr().out.splitlines()
    assert "3 spans of 2 processes" in title
    shown = [line.partition(" ms  ")[2].partition(" ms  ")[2] for line in spans]
    assert [line.split()[0] for line in shown] == ["gateway-1", "gateway-1", "verifier-1"]
    assert [line[26:] for line in shown] == ["POST /v1/completions", "  chat m", "    step  tokens=3"]


def test_a_trace_is_found_by_its_request(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([file], "fir") == 0
    title = capsys.readouterr().out.splitlines()[0]
    assert "2 spans of 1 processes" in title
    assert run([file], title.split()[1]) == 0
    assert capsys.readouterr().out.splitlines()[0] == title


def test_a_trace_or_a_file_that_is_not_there_is_named(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([file], "third") == 2
    assert "the files have no trace third" in capsys.readouterr().err
    assert run([file.parent / "none"], "") == 2
    assert "none cannot be read: No such file" in capsys.readouterr().err
    file.write_text("no span\n")
    assert run([file], "") == 2
    assert "is no file of spans" in capsys.readouterr().err
