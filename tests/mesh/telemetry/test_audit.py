"""The audit log: its lines, its file, and disks that fail."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from outrider.mesh.errors import ConfigError
from outrider.mesh.telemetry import REGISTRY, audit, start_audit, stop_audit
from outrider.mesh.telemetry.chained.log import MOST_WAITING
from outrider.mesh.telemetry.line_file import LineFile
from outrider.mesh.telemetry.repeats import MOST_CALLERS

from tests.waiting import eventually


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "audit.jsonl"
    stop_audit()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def lost() -> float:
    return REGISTRY.get_sample_value("outrider_audit_lost_events_total") or 0.0


def failed_writes() -> float:
    return REGISTRY.get_sample_value("outrider_audit_failed_writes_total") or 0.0


def test_an_event_is_one_line_that_only_its_owner_may_read(path: Path) -> None:
    start_audit("gateway", "gateway-1", str(path))
    audit("key_revoked", actor="user root", tenant="acme", door="cli", subject="key 1234")
    assert stop_audit() == 0
    (line,) = lines(path)
    assert line.pop("time").endswith("Z")
    assert line == {
        "event": "key_revoked",
        "outcome": "done",
        "actor": "user root",
        "tenant": "acme",
        "door": "cli",
        "address": "",
        "subject": "key 1234",
        "reason": "",
        "request": "",
        "count": 1,
        "service": "gateway",
        "instance": "gateway-1",
        "chain": line["chain"],
        "serial": 1,
        "previous": "",
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_text_of_a_request_makes_a_second_line(path: Path) -> None:
    start_audit("gateway", "gateway-1", str(path))
    audit("authentication_refused", outcome="refused", actor='key x"\n{"event":"forged"}', reason="r" * 10_000)
    stop_audit()
    (line,) = lines(path)
    assert line["event"] == "authentication_refused"
    assert len(line["reason"]) == 500


def test_refusals_that_repeat_are_one_line_with_their_count(path: Path) -> None:
    start_audit("gateway", "gateway-1", str(path))
    for request in range(50):
        audit("limit_reached", outcome="refused", actor="key 1", tenant="acme", request=str(request))
    audit("limit_reached", outcome="refused", actor="key 2", tenant="acme", request="other")
    audit("key_created")
    audit("key_created")
    stop_audit()
    found = [(line["event"], line["request"], line["count"]) for line in lines(path)]
    assert found == [
        ("limit_reached", "0", 1),
        ("limit_reached", "other", 1),
        ("key_created", "", 1),
        ("key_created", "", 1),
        ("limit_reached", "49", 49),
    ]
    assert [line["serial"] for line in lines(path)] == [1, 2, 3, 4, 5]


def refuse(key: int, address: str) -> None:
    audit("authentication_refused", outcome="refused", actor=f"key {key}", door="http", address=address)


def test_a_caller_without_a_valid_key_is_told_of_by_its_address_whatever_key_it_claims(path: Path) -> None:
    start_audit("gateway", "gateway-1", str(path))
    for key in range(400):
        refuse(key, "203.0.113.7")
    for key in range(200):
        refuse(key, f"2001:db8::{key:x}")
    stop_audit()
    assert [(line["actor"], line["address"], line["count"]) for line in lines(path)] == [
        ("key 0", "203.0.113.7", 1),
        ("key 0", "2001:db8::0", 1),
        ("", "203.0.113.7", 399),
        ("", "2001:db8::/64", 199),
    ]


def test_callers_from_many_addresses_make_a_bounded_number_of_lines(path: Path) -> None:
    start_audit("gateway", "gateway-1", str(path))
    for number in range(5000):
        refuse(number, f"10.0.{number >> 8}.{number & 255}")
    audit("limit_reached", outcome="refused", actor="key 1", tenant="acme")
    audit("key_created")
    assert stop_audit() == 0
    told = lines(path)
    assert len(told) == MOST_CALLERS + 4
    assert sum(line["count"] for line in told) == 5002
    assert {line["event"] for line in told[-3:-1]} == {"limit_reached", "key_created"}
    assert (told[-1]["address"], told[-1]["count"]) == ("", 5000 - MOST_CALLERS - 1)
    assert told[-1]["reason"].startswith("more than 1000 callers were refused")


async def test_no_flood_of_refused_callers_takes_the_place_of_another_event(tmp_path: Path) -> None:
    folder, before = tmp_path / "mounted", lost()
    folder.mkdir()
    start_audit("gateway", "gateway-1", str(folder / "audit.jsonl"))
    folder.rename(tmp_path / "away")
    for key in range(3 * MOST_WAITING):
        refuse(key, f"10.0.{(key >> 8) & 255}.{key & 255}")
    audit("key_created")
    folder.mkdir()
    log = folder / "audit.jsonl"
    await eventually(lambda: log.exists() and "key_created" in log.read_text())  # its lock is there before the log
    assert stop_audit() == 0
    assert lost() == before


def test_lines_go_to_a_new_file_once_the_old_one_is_moved_away(path: Path) -> None:
    file, rotated = LineFile(str(path)), path.with_suffix(".1")
    file.write(deque([b"one\n"]))
    os.rename(path, rotated)
    file.write(deque([b"two\n"]))
    file.write(deque([b"three\n", b"four\n"]))
    assert (rotated.read_bytes(), path.read_bytes()) == (b"one\n", b"two\nthree\nfour\n")


def test_a_line_that_a_full_disk_cuts_off_is_written_again_and_whole(path: Path) -> None:
    file, lines = LineFile(str(path)), deque([b"first\n", b"second\n", b"third\n"])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    took_signal = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9, before[1]))
    try:
        with pytest.raises(OSError, match="large"):
            file.write(lines)
        assert list(lines) == [b"second\n", b"third\n"]
        with pytest.raises(OSError, match="large"):
            file.write(lines)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, took_signal)
    lines.append(b"fourth\n")
    file.write(lines)
    assert not lines
    assert path.read_bytes() == b"first\nsec\nsecond\nthird\nfourth\n"


def test_several_processes_append_to_one_file(path: Path) -> None:
    one, two = LineFile(str(path)), LineFile(str(path))
    one.write(deque([b"one\n"]))
    two.write(deque([b"two\n"]))
    one.write(deque([b"three\n"]))
    assert path.read_bytes() == b"one\ntwo\nthree\n"


def test_events_that_a_full_disk_does_not_take_are_counted_as_lost() -> None:
    before = lost()
    start_audit("gateway", "gateway-1", "/dev/full")
    audit("key_created")
    audit("key_revoked")
    assert stop_audit() == 2
    assert lost() - before == 2


async def test_events_wait_while_the_file_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "mounted"
    folder.mkdir()
    start_audit("gateway", "gateway-1", str(folder / "audit.jsonl"))
    folder.rename(tmp_path / "away")
    failures = failed_writes()
    audit("key_created")
    audit("key_revoked")
    await eventually(lambda: failed_writes() > failures)
    folder.mkdir()
    await eventually(lambda: (folder / "audit.jsonl").exists() and len(lines(folder / "audit.jsonl")) == 2)
    assert stop_audit() == 0


def test_a_file_that_cannot_be_opened_is_a_wrong_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="audit_log"):
        start_audit("gateway", "gateway-1", str(tmp_path / "none" / "audit.jsonl"))


def test_nothing_is_noted_where_nobody_asked_for_it() -> None:
    audit("key_created")
    assert stop_audit() == 0
