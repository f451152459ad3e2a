"""Writes what this version sends and stores into `recorded.json`: ``python -m tests.wire.record_bytes``.

`test_recorded.py` holds later versions to it. Run it for a release, so that the next version reads what that one wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from outrider.gateway.ledger.record import FurtherPrompt, Record
from outrider.gateway.request.models import ServedModel
from outrider.mesh.registry import Member, State
from outrider.v1 import inference_pb2, kvcache_pb2, proposer_pb2, sampling_pb2, tokenizer_pb2, verifier_pb2
from outrider.wire.frames import Alternative, Draft, Finish, Frame, Likelihood, Usage
from outrider.wire.page_news import PageNews
from outrider.wire.tenants import Key, Limits, Tenant

FILE = Path(__file__).with_name("recorded.json")
_FILES = (inference_pb2, kvcache_pb2, proposer_pb2, sampling_pb2, tokenizer_pb2, verifier_pb2)

STRUCTS: dict[str, msgspec.Struct] = {
    "frame": Frame(
        "r1",
        7,
        [5, 9],
        ["a", "bc"],
        ["", "ngram"],
        Finish.LENGTH,
        Usage(3, 9, 1, 1, 2, 6, True, 4),
        "why",
        [Likelihood(-0.5, b"a", [Alternative(5, -0.5, b"a")]), Likelihood(None, b"bc", [])],
        "verifier-1",
        [Draft(8, [9, 4], [b"bc", b"d"], [-1, 0], ["ngram", "suffix"], [0])],
    ),
    "given_up": Frame("r1", 9, [], [], [], Finish.CANCELLED, Usage(3, 9), verifier="verifier-1"),
    "member": Member("verifier", "verifier-1", "127.0.0.1:1", State.DRAINING, {"model": "pocket", "load": 3}),
    "news": PageNews("verifier-1", "e1", 4, b"12345678", b"87654321"),
    "record": Record(
        created=1,
        served=ServedModel("pocket", "v1", 2048),
        prompt=b"\x01\x00\x00\x00",
        sampling=sampling_pb2.SamplingParams(temperature=1.0, seed=17, max_tokens=8).SerializeToString(),
        speculation=b"",
        seed=17,
        choices=2,
        lingers=True,
        shape=b"{}",
        verifiers=["verifier-1", "verifier-2"],
        further=[FurtherPrompt(b"\x02\x00\x00\x00", 4, -3)],
    ),
    "tenant": Tenant(name="acme", created=1.5, limits=Limits(requests_per_minute=10)),
    "key": Key(id="k1", tenant="acme", digest="00ff", created=1.5, limits=Limits(priority=2)),
}
"""What is written by msgspec, by name."""

SUBMISSION = verifier_pb2.SubmitRequest(
    request_id="r1",
    tenant="acme",
    prompt=b"\x01\x00\x00\x00",
    sampling=sampling_pb2.SamplingParams(temperature=1.0, seed=17, max_tokens=8),
    emitted=b"\x05\x00\x00\x00",
    lease_ms=10_000,
    stream_id="r1",
    record=b"record",
)


def encoded(value: msgspec.Struct) -> bytes:
    """``value`` as it is sent or stored: tenants and keys as JSON, everything else as MessagePack."""
    return msgspec.json.encode(value) if isinstance(value, Tenant | Key) else msgspec.msgpack.encode(value)


def fields() -> list[str]:
    """Each field of all messages: its message and name, its number, its type, and whether it repeats."""
    messages = [message for file in _FILES for message in file.DESCRIPTOR.message_types_by_name.values()]
    return sorted(line for message in messages for line in _fields(message))


def _fields(message: Descriptor) -> Iterator[str]:
    for field in message.fields:
        yield f"{field.full_name} {field.number} {_type(field)}{' repeated' if field.is_repeated else ''}"
    for nested in message.nested_types:
        yield from _fields(nested)


def _type(field: FieldDescriptor) -> str:
    named = field.message_type or field.enum_type
    return named.full_name if named else str(field.type)


def _recorded() -> dict[str, Any]:
    values = {name: encoded(value).hex() for name, value in STRUCTS.items()}
    message: Message = SUBMISSION
    return values | {"submission": message.SerializeToString(deterministic=True).hex(), "fields": fields()}


if __name__ == "__main__":
    FILE.write_text(json.dumps(_recorded(), indent=1) + "\n", encoding="utf-8")
