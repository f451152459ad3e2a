"""The chain of hashes in an audit log, which all who write to it share: what was done to a file shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from outrider.cli.commands.audit import verify
from outrider.mesh.telemetry import UsageRecord, audit, start_audit, stop_audit
from outrider.mesh.telemetry.chained.log import ChainedLog
from outrider.mesh.telemetry.chained.reader import ChainBroken, ChainReader
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
def path(tmp_path: Path) -> Path:
    """A log with eight lines of four processes, which write by rounds."""
    path = tmp_path / "log.jsonl"
    for turn in range(2):
        logs = [ChainedLog[UsageRecord](LineFile(str(path))) for _ in range(2)]
        for _ in range(2):
            for place, log in enumerate(logs):
                log.note(usage(f"gateway-{turn}{place}"))
        for log in logs:
            assert log.close() == 0
    return path


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A log with a line of each of four commands."""
    path = tmp_path / "audit.jsonl"
    for command in range(4):
        start_audit("cli", f"cli-{command}", str(path))
        audit("key_created", tenant="acme", subject=f"key {command}")
        assert stop_audit() == 0
    return path


def read(lines: list[bytes]) -> ChainReader:
    reader = ChainReader()
    reader.read("log", lines)
    return reader


def changed(line: bytes) -> bytes:
    return line.replace(b"acme", b"evil")


def forged(line: bytes) -> bytes:
    """A line of another command, as older versions wrote it."""
    content = msgspec.json.decode(line) | {"instance": "cli-9", "serial": 1, "previous": ""}
    return msgspec.json.encode({name: value for name, value in content.items() if name != "chain"})


def another_chain(line: bytes) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(line) | {"chain": "0123", "serial": 1, "previous": ""})


def test_all_processes_that_write_to_a_file_write_one_chain(path: Path) -> None:
    lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    assert len({line["instance"] for line in lines}) == 4
    assert len({line["chain"] for line in lines}) == 1
    assert [line["serial"] for line in lines] == list(range(1, 9))


@pytest.mark.parametrize(
    "tamper",
    [
        lambda lines: lines[1:],
        lambda lines: [changed(lines[0]), *lines[1:]],
        lambda lines: [*lines[:1], *lines],
        lambda lines: [lines[0], lines[0].replace(b'"serial":2', b'"serial":3'), *lines[1:]],
        lambda lines: [forged(lines[0]), *lines],
        lambda lines: [another_chain(lines[0]), *lines],
        lambda lines: lines[::-1],
    ],
    ids=["removed", "changed", "repeated", "added", "forged", "another chain", "moved"],
)
def test_a_line_of_a_command_that_was_tampered_with_breaks_the_chain(commands: Path, tamper: Tamper) -> None:
    first, *middle, last = commands.read_bytes().splitlines()
    read([first, *middle, last])
    with pytest.raises(ChainBroken, match=r"log:\d: line \d of \S+ (does not follow|is not in the chain)"):
        read([first, *tamper(middle), last])


def test_an_end_that_was_cut_off_is_missed_while_the_head_is_there(
    commands: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = commands.read_bytes().splitlines(keepends=True)
    commands.write_bytes(b"".join(lines[:-1]))
    assert verify([commands], []) == 1
    assert "line 4 of " in capsys.readouterr().err
    commands.with_name("audit.jsonl.head").unlink()
    assert verify([commands], []) == 0
    assert "lines at the end may be cut off" in capsys.readouterr().out


def test_the_chain_goes_on_over_a_line_that_was_cut_off(commands: Path) -> None:
    lines = commands.read_bytes().splitlines(keepends=True)
    commands.write_bytes(b"".join(lines[:-1]))
    start_audit("gateway", "gateway-1", str(commands))
    audit("key_revoked")
    assert stop_audit() == 0
    with pytest.raises(ChainBroken, match=r"line 5 of .* does not follow line 3"):
        read(commands.read_bytes().splitlines())


def test_a_process_that_died_before_it_stored_the_head_leaves_no_gap(commands: Path) -> None:
    stored = commands.with_name("audit.jsonl.head")
    before = stored.read_bytes()
    for _ in range(2):
        start_audit("gateway", "gateway-1", str(commands))
        audit("key_revoked")
        assert stop_audit() == 0
        stored.write_bytes(before)
    assert [(chain.first, chain.last) for chain in read(commands.read_bytes().splitlines()).chains] == [(1, 6)]


def test_a_chain_begins_behind_the_lines_of_an_older_version(commands: Path) -> None:
    older = forged(commands.read_bytes().splitlines()[0]) + b"\n"
    commands.with_name("audit.jsonl.head").unlink()
    commands.write_bytes(older)
    for _ in range(2):
        start_audit("gateway", "gateway-1", str(commands))
        audit("key_revoked")
        assert stop_audit() == 0
    chains = read(commands.read_bytes().splitlines()).chains
    assert [(chain.first, chain.last) for chain in chains] == [(1, 1), (1, 2)]


async def test_a_chain_goes_on_in_the_next_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, rotated = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.1"
    log = ChainedLog[UsageRecord](LineFile(str(path)))
    log.note(usage("gateway-1"))
    await eventually(lambda: path.exists() and path.read_bytes().endswith(b"\n"))
    path.rename(rotated)
    start_audit("cli", "cli-1", str(path))
    audit("key_revoked")
    assert stop_audit() == 0
    log.note(usage("gateway-1"))
    log.close()
    assert verify([rotated, path], []) == 0
    assert ": lines 1 to 3, the last is " in capsys.readouterr().out
    assert verify([path], []) == 0
    assert capsys.readouterr().out.endswith("; lines 1 to 1 are in an older file, or gone\n")


def test_processes_that_write_at_once_write_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    logs = [ChainedLog[UsageRecord](LineFile(str(path))) for _ in range(8)]
    for _ in range(50):
        for place, log in enumerate(logs):
            log.note(usage(f"gateway-{place}"))
    assert [log.close(60) for log in logs] == [0] * 8
    assert [chain.last for chain in read(path.read_bytes().splitlines()).chains] == [400]


def test_a_log_that_was_cut_off_lacks_the_line_that_was_noted(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = path.read_bytes().splitlines()
    noted = read(lines).chains[-1].head
    assert verify([path], [noted]) == 0
    path.write_bytes(b"\n".join([*lines[:-2], b'{"torn', b""]))
    path.with_name("log.jsonl.head").unlink()
    assert verify([path], []) == 0
    assert "1 lines are no records" in capsys.readouterr().out
    assert verify([path], [noted]) == 1
    assert f"no line has the hash {noted}" in capsys.readouterr().err
    assert verify([path.with_name("none")], []) == 2
