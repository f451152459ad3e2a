"""The chain of hashes in audit logs: what was done to a file shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from outrider.cli.commands.audit import verify
from outrider.mesh.telemetry import UsageRecord, audit, start_audit, stop_audit
from outrider.mesh.telemetry.audit_chain import ChainBroken, ChainReader
from outrider.mesh.telemetry.chained_log import ChainedLog
from outrider.mesh.telemetry.line_file import LineFile

from tests.waiting import eventually

Tamper = Callable[[list[bytes]], list[bytes]]


def usage(instance: str) -> UsageRecord:
    return UsageRecord(
        outcome="done",
        actor="key 1",
        tenant="acme",
        door="http",
        address="",
        request="r",
        model="m",
        choices=1,
        input_tokens=3,
        output_tokens=5,
        finish_reasons=["stop"],
        error="",
        seconds=0.1,
        instance=instance,
    )


@pytest.fixture
def lines(tmp_path: Path) -> list[bytes]:
    """Eight lines of two processes, in turns."""
    path = tmp_path / "log.jsonl"
    for turn in range(2):
        logs = [ChainedLog[UsageRecord](LineFile(str(path))) for _ in range(2)]
        for _ in range(2):
            for place, log in enumerate(logs):
                log.note(usage(f"gateway-{turn}{place}"))
        for log in logs:
            assert log.close() == 0
    return path.read_bytes().splitlines()


def read(lines: list[bytes]) -> ChainReader:
    reader = ChainReader()
    reader.read("log", lines)
    return reader


def changed(line: bytes) -> bytes:
    return line.replace(b"acme", b"evil")


def test_lines_of_several_processes_follow_each_other(lines: list[bytes]) -> None:
    chains = read(lines).chains
    assert {(chain.instance, chain.first, chain.last) for chain in chains} == {
        (f"gateway-{turn}{place}", 1, 2) for turn in range(2) for place in range(2)
    }


@pytest.mark.parametrize(
    "tamper",
    [
        lambda lines: lines[1:],
        lambda lines: [changed(lines[0]), *lines[1:]],
        lambda lines: [*lines[:1], *lines],
        lambda lines: [lines[0], lines[0].replace(b'"serial":1', b'"serial":2'), *lines[1:]],
        lambda lines: sorted(lines, reverse=True, key=lambda line: b'"serial":2' in line),
    ],
    ids=["removed", "changed", "repeated", "added", "moved"],
)
def test_a_line_that_was_tampered_with_breaks_its_chain(tmp_path: Path, tamper: Tamper) -> None:
    path = tmp_path / "audit.jsonl"
    start_audit("gateway", "gateway-1", str(path))
    for event in ("key_created", "key_rotated", "key_revoked"):
        audit(event, tenant="acme")
    assert stop_audit() == 0
    first, second, third = path.read_bytes().splitlines()
    read([first, second, third])
    with pytest.raises(ChainBroken, match=r"log:\d: line \d of gateway-1 does not follow"):
        read([first, *tamper([second, third]), third])


def test_a_process_that_is_started_again_under_its_name_begins_a_new_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for _ in range(2):
        start_audit("gateway", "gateway-1", str(path))
        audit("key_created")
        audit("key_revoked")
        stop_audit()
    assert [chain.last for chain in read(path.read_bytes().splitlines()).chains] == [2, 2]


async def test_a_chain_goes_on_in_the_next_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, rotated = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.1"
    log = ChainedLog[UsageRecord](LineFile(str(path)))
    log.note(usage("gateway-1"))
    await eventually(lambda: path.read_bytes().endswith(b"\n"))
    path.rename(rotated)
    log.note(usage("gateway-1"))
    log.close()
    assert verify([rotated, path], []) == 0
    assert capsys.readouterr().out.startswith("gateway-1: lines 1 to 2, the last is ")
    assert verify([path], []) == 0
    said = capsys.readouterr().out
    assert said.startswith("gateway-1: lines 2 to 2")
    assert said.endswith("; lines 1 to 1 are in an older file, or gone\n")


def test_a_log_that_was_cut_off_lacks_the_line_that_was_noted(
    tmp_path: Path, lines: list[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    path, noted = tmp_path / "log.jsonl", read(lines).chains[-1].head
    assert verify([path], [noted]) == 0
    path.write_bytes(b"\n".join([*lines[:-2], b'{"torn', b""]))
    assert verify([path], []) == 0
    assert "1 lines are no records" in capsys.readouterr().out
    assert verify([path], [noted]) == 1
    assert f"no line has the hash {noted}" in capsys.readouterr().err
    assert verify([tmp_path / "none"], []) == 2
