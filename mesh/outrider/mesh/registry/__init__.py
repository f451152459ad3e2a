"""The registry: processes announce themselves over NATS, and notice within seconds when another falls silent."""

from outrider.mesh.registry.members import (
    TIMES,
    Member,
    Members,
    State,
    Times,
    announce_subject,
    announcement,
    ask_subject,
    batch_subject,
    keeper_subject,
)
from outrider.mesh.registry.registry import Registry

__all__ = [
    "TIMES",
    "Member",
    "Members",
    "Registry",
    "State",
    "Times",
    "announce_subject",
    "announcement",
    "ask_subject",
    "batch_subject",
    "keeper_subject",
]
