"""A process with many simulated members: ``python -m outrider.loadtest.members.simulated URL FIRST COUNT [--direct]``.

A member has a connection and a registry of its own, and announces a status as long as that of a real service. What its
kind follows it hears and does not decode: on real machines each process has a processor of its own for that.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import uvloop
from outrider.mesh.bus import Bus, Message
from outrider.mesh.registry import Registry, State, batch_subject
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import configure_logs

KILL = "loadtest.kill"
"""Subject of the names of members that shall fall silent."""
PARTS = {"verifier": 70, "proposer": 15, "gateway": 5, "tokenizer": 5, "kvcache": 5}
"""Members of each kind among 100."""
_FOLLOWS = {"verifier": ("kvcache", "proposer", "verifier"), "gateway": ("tokenizer", "verifier")}
_STATUS_BYTES = {"verifier": 400, "tokenizer": 250}
_APART_S = 0.01


def kind_of(number: int) -> str:
    """The kind of a member by its number."""
    place, total = number % 100, 0
    for kind, part in PARTS.items():
        total += part
        if place < total:
            return kind
    raise AssertionError("the parts are less than 100")


def name_of(number: int) -> str:
    """The instance of a member by its number."""
    return f"{kind_of(number)}-{number:04}"


async def _join(url: str, number: int, direct: bool) -> tuple[Tasks, Bus]:
    """The work of a member, and its connection."""
    kind, tasks, bus = kind_of(number), Tasks(), Bus()
    await bus.connect(url, name_of(number), wait_s=60)
    status: dict[str, Any] = {"pid": number, "rest": "x" * _STATUS_BYTES.get(kind, 100)}
    follows = None if direct else ()
    registry = Registry(bus, kind, name_of(number), lambda: status, tasks, follows=follows)
    if not direct:
        for followed in _FOLLOWS.get(kind, ()):
            await bus.subscribe(batch_subject(followed), lambda _: None)
    await registry.start()
    registry.set_state(State.READY)
    return tasks, bus


async def _main(url: str, first: int, count: int, direct: bool) -> None:
    members: dict[str, tuple[Tasks, Bus]] = {}
    control = Bus()
    await control.connect(url, f"loadtest-{first}", wait_s=60)

    async def kill(message: Message) -> None:
        if (member := members.pop(message.data.decode(), None)) is not None:
            tasks, bus = member
            await tasks.cancel()
            await bus.close()

    await control.subscribe(KILL, kill)
    for number in range(first, first + count):
        members[name_of(number)] = await _join(url, number, direct)
        await asyncio.sleep(_APART_S)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    configure_logs("error", "console")
    uvloop.run(_main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), "--direct" in sys.argv))
