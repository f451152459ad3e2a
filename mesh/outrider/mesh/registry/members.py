"""What processes announce of themselves, the subjects, and the times by which a process counts as gone."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
from outrider.mesh.telemetry import get_logger

_log = get_logger("registry")


def announce_subject(kind: str) -> str:
    """NATS subject of the announcements of processes of ``kind``; the broker may reserve it to them."""
    return f"outrider.registry.announce.{kind}"


def ask_subject(kind: str) -> str:
    """NATS subject on which a starting process of ``kind`` asks all processes to announce themselves."""
    return f"outrider.registry.ask.{kind}"


def batch_subject(kind: str) -> str:
    """NATS subject on which the keeper of ``kind`` passes on announcements; the broker may reserve it to the kind."""
    return f"outrider.registry.batch.{kind}"


def keeper_subject(kind: str) -> str:
    """NATS subject on which the keeper of ``kind`` tells the processes of the kind that it is there."""
    return f"outrider.registry.keeper.{kind}"


class State(StrEnum):
    """The state of a process; only ready and draining ones are members."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    GONE = "gone"


class Member(msgspec.Struct, frozen=True):
    """A process of the mesh. ``address`` is host:port of its gRPC server; ``status`` what its kind announces."""

    kind: str
    instance: str
    address: str
    state: State
    status: dict[str, Any]


class Announcement(msgspec.Struct, array_like=True, frozen=True):
    """A member as it announces itself; ``began`` is when the process began, in seconds since 1970."""

    member: Member
    began: float


class Times(NamedTuple):
    """Times by which a registry decides which processes are there, in seconds.

    Attributes:
        announce_every_s: between announcements.
        silence_s: a member from which nothing is heard for so long is gone.
        deaf_s: where a process does not hear itself for so long, it or the broker is at fault: no silence counts.
        grace_s: time for members to be heard again, once the process hears itself again.
        news_s: time within which every member announces itself to a process that has just started.
    """

    announce_every_s: float = 0.7
    silence_s: float = 2.2
    deaf_s: float = 1.5
    grace_s: float = 3.0
    news_s: float = 2.2


TIMES = Times()
TICK_S = 0.2
PATIENCE_S = 0.6
"""Seconds for which a keeper may be silent: then no silence of members counts, and another process takes over."""
Members = list[Member]
encode = msgspec.msgpack.Encoder().encode
_decode_announcement = msgspec.msgpack.Decoder(Announcement).decode
decode_batch = msgspec.msgpack.Decoder(list[Any]).decode


def announcement(member: Member, began: float) -> bytes:
    """The announcement of ``member``, whose process began at ``began``, in seconds since 1970."""
    return encode(Announcement(member, began))


def read_announcement(data: bytes, kind: str) -> Announcement | None:
    """The announcement of a process of ``kind``; None for anything else, which the log tells."""
    try:
        read = _decode_announcement(data)
    except msgspec.MsgspecError:
        _log.warning("an announcement could not be read", bytes=len(data))
        return None
    if read.member.kind != kind:
        _log.warning("an announcement names another kind", subject_kind=kind, kind=read.member.kind)
        return None
    return read
