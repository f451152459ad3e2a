"""A process with many simulated members: ``python -m outrider.loadtest.members.simulated URL FIRST COUNT``.

Members with a number below `REAL` have a registry, and so may become keepers. The others are connections that publish
and subscribe to the same in the steady state. No member reads what it hears of other kinds: on real machines each
process has a processor for that. Statuses do not change, as in an idle mesh.
"""

from __future__ import annotations

import asyncio
import sys
import time
from urllib.parse import urlsplit

import uvloop
from outrider.mesh.bus import Bus, Message
from outrider.mesh.registry import (
    TIMES,
    Member,
    Registry,
    State,
    announce_subject,
    announcement,
    batch_subject,
    keeper_subject,
)
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import configure_logs

KILL = "loadtest.kill"
"""Subject of the names of members that shall die."""
KINDS = ("verifier",) * 13 + ("proposer",) * 3 + ("gateway", "tokenizer", "kvcache", "gateway")
"""Kinds of members: 65 % are verifiers."""
REAL = 20
_FOLLOWS = {"verifier": ("kvcache", "proposer", "verifier"), "gateway": ("tokenizer", "verifier")}
_STATUS_BYTES = {"verifier": 400, "tokenizer": 250}
_CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"lang":"python","version":"0"}\r\n'


def kind_of(number: int) -> str:
    """The kind of a member by its number."""
    return KINDS[number % len(KINDS)]


def name_of(number: int) -> str:
    """The instance of a member by its number."""
    return f"{kind_of(number)}-{number:04}"


def _status(kind: str) -> dict[str, str]:
    return {"status": "x" * _STATUS_BYTES.get(kind, 100)}


class RealMember:
    """A member with a registry of its own."""

    async def join(self, url: str, number: int) -> None:
        """Announces itself from now on."""
        kind, self._tasks, self._bus = kind_of(number), Tasks(), Bus()
        await self._bus.connect(url, name_of(number), wait_s=60)
        registry = Registry(self._bus, kind, name_of(number), lambda: dict(_status(kind)), self._tasks, follows=())
        for followed in _FOLLOWS.get(kind, ()):
            await self._bus.subscribe(batch_subject(followed), lambda _: None)
        await registry.start()
        registry.set_state(State.READY)

    async def die(self) -> None:
        """Falls silent, and loses its connection."""
        await self._tasks.cancel()
        await self._bus.close()


class PlainMember(asyncio.Protocol):
    """A connection that announces a member, and throws away what it is sent."""

    async def join(self, url: str, number: int) -> None:
        """Subscribes to what a member of a crowd hears, and announces itself from now on."""
        parts, kind = urlsplit(url), kind_of(number)
        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: self, str(parts.hostname), parts.port or 4222
        )
        self._transport = transport
        subjects = [keeper_subject(kind), *map(batch_subject, _FOLLOWS.get(kind, ()))]
        transport.write(_CONNECT + b"".join(f"SUB {each} {sid}\r\n".encode() for sid, each in enumerate(subjects)))
        data = announcement(Member(kind, name_of(number), "host:1", State.READY, dict(_status(kind))), time.time())
        self._message = f"PUB {announce_subject(kind)} {len(data)}\r\n".encode() + data + b"\r\n"
        self._task = asyncio.create_task(self._announce())

    async def die(self) -> None:
        """Falls silent, and loses its connection."""
        self._task.cancel()
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Answers the broker's pings."""
        if b"PING\r\n" in data:
            self._transport.write(b"PONG\r\n")

    async def _announce(self) -> None:
        while True:
            self._transport.write(self._message)
            await asyncio.sleep(TIMES.announce_every_s)


async def _main(url: str, first: int, count: int) -> None:
    members: dict[str, RealMember | PlainMember] = {}
    control = Bus()
    await control.connect(url, f"loadtest-{first}", wait_s=60)

    async def kill(message: Message) -> None:
        if (member := members.pop(message.data.decode(), None)) is not None:
            await member.die()

    await control.subscribe(KILL, kill)
    for number in range(first, first + count):
        member = members[name_of(number)] = RealMember() if number < REAL else PlainMember()
        await member.join(url, number)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    configure_logs("error", "console")
    uvloop.run(_main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
