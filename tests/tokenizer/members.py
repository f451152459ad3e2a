"""Finds a process of the mesh."""

from __future__ import annotations

from outrider.mesh.bus import Bus
from outrider.mesh.registry import Member, Registry


async def member_named(bus: Bus, instance: str) -> Member:
    """The tokenizer ``instance`` in the registry, once it is there."""
    registry = Registry(bus, "test", "reader")
    await registry.start()
    members = await registry.wait_for("tokenizer", lambda all_: any(m.instance == instance for m in all_), 240)
    registry.leave()
    return next(member for member in members if member.instance == instance)
