"""A line of the audit log."""

from __future__ import annotations

from typing import Literal

import msgspec

Event = Literal[
    "authentication_refused",
    "permission_refused",
    "limit_reached",
    "locked_out",
    "tenant_created",
    "tenant_changed",
    "key_created",
    "key_rotated",
    "key_revoked",
    "admin_call",
    "certificate_renewed",
    "stream_revoked",
    "stream_filtered",
    "content_erased",
    "abuse_suspected",
]
Outcome = Literal["done", "refused", "failed"]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One line.

    Attributes:
        time: in UTC, as RFC 3339 writes it.
        actor: who did it: ``key ID``, ``token SUBJECT``, ``certificate URI`` or ``user NAME``; of a refused request who
            it claims to be, or nothing.
        door: where it was done: ``http``, ``grpc``, ``nats``, ``admin``, ``mesh`` or ``cli``.
        subject: what was changed.
        count: events that the line stands for: refusals that repeat make one line (`Repeats`).
        chain: name of the line's chain: that of the file, or nothing for the process's own.
        serial: number of the line in its chain, from 1.
        previous: hash of the chain's line before it, as `line_hash` makes it; empty for the first.
    """

    time: str
    event: Event
    outcome: Outcome
    actor: str
    tenant: str
    door: str
    address: str
    subject: str
    reason: str
    request: str
    count: int
    service: str
    instance: str
    chain: str = ""
    serial: int = 0
    previous: str = ""

    @property
    def known(self) -> bool:
        """Whether the actor has shown who it is, and does not only claim it."""
        return bool(self.tenant) or self.door == "mesh"

    @property
    def repeats(self) -> bool:
        """Whether anyone may cause the event as often as they like."""
        return self.outcome == "refused" or (self.event == "abuse_suspected" and not self.known)
