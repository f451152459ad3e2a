"""What an earlier version sent and stored is read by this one, and what this one sends is read by the earlier one.

`record_bytes.py` has written `recorded.json` with the code of that version.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from outrider.gateway.ledger.record import Record
from outrider.mesh.bus import Bus
from outrider.mesh.registry import Registry, State, announce_subject
from outrider.v1 import verifier_pb2 as pb
from outrider.wire.frames import Frame, decode_frame
from outrider.wire.page_news import PageNews, decode_news
from outrider.wire.tenants import Key, Tenant

from tests.wire.record_bytes import FILE, STRUCTS, SUBMISSION, encoded, fields

RECORDED = json.loads(FILE.read_text(encoding="utf-8"))
READERS: dict[type[Any], Any] = {
    Frame: decode_frame,
    PageNews: decode_news,
    Record: Record.decode,
    Tenant: lambda data: msgspec.json.decode(data, type=Tenant),
    Key: lambda data: msgspec.json.decode(data, type=Key),
}
READ = [name for name, value in STRUCTS.items() if type(value) in READERS]


def recorded(name: str) -> bytes:
    return bytes.fromhex(RECORDED[name])


def plain(name: str, data: bytes) -> Any:
    """``data`` without its type."""
    return (msgspec.json if name in ("tenant", "key") else msgspec.msgpack).decode(data)


def extends(new: Any, old: Any) -> bool:
    """Whether an earlier reader finds in ``new`` all that it found in ``old``, and at most ignores the rest."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(name in new and extends(new[name], value) for name, value in old.items())
    if isinstance(old, list):
        whole = isinstance(new, list) and len(new) >= len(old)
        return whole and all(extends(one, other) for one, other in zip(new, old, strict=False))
    return bool(new == old)


@pytest.mark.parametrize("name", READ)
def test_what_an_earlier_version_wrote_is_read(name: str) -> None:
    assert READERS[type(STRUCTS[name])](recorded(name)) == STRUCTS[name]


@pytest.mark.parametrize("name", READ)
def test_an_earlier_version_finds_its_fields_in_what_is_written_now(name: str) -> None:
    assert extends(plain(name, encoded(STRUCTS[name])), plain(name, recorded(name)))


def test_fields_that_are_missing_or_differ_are_noticed() -> None:
    assert extends([1, {"a": 2, "b": 3}, 4], [1, {"a": 2}])
    assert not extends([1], [1, 2])
    assert not extends({"b": 3}, {"a": 3})
    assert not extends([1, 3], [1, 2])


async def test_the_announcement_of_an_earlier_version_is_heard(bus: Bus) -> None:
    registry = Registry(bus, "test", "listener")
    await registry.start()
    announcement = msgspec.msgpack.encode([msgspec.msgpack.decode(recorded("member")), 1.0])
    bus.publish(announce_subject("verifier"), announcement)
    found = lambda members: any(member.instance == "verifier-1" for member in members)  # noqa: E731
    members = await registry.wait_for("verifier", found, 30)
    member = next(member for member in members if member.instance == "verifier-1")
    registry.leave()
    assert (member, member.state) == (STRUCTS["member"], State.DRAINING)


def test_a_submission_of_an_earlier_version_is_read_and_written_alike() -> None:
    assert pb.SubmitRequest.FromString(recorded("submission")) == SUBMISSION
    assert SUBMISSION.SerializeToString(deterministic=True) == recorded("submission")


def test_no_field_of_a_message_has_gone_or_changed_its_number_or_type() -> None:
    assert set(RECORDED["fields"]) <= set(fields())
