"""Deaths of services while many clients read: every stream has to reach its end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from outrider.loadtest.attack import victims
from outrider.loadtest.attack.mesh import ATTACKER, Mesh, listens, until
from outrider.loadtest.attack.reader import StreamRecord, client, read
from outrider.loadtest.attack.verdict import KILLED_STALL_S, OUTCOMES, Attack, AttackLog

_CLIENTS = 40
_TOKENS = 160
_ROUNDS = 5
_AWAY_S = 2.0


class _Clients:
    """Forty clients that read seeded streams and know the right answers."""

    def __init__(self, mesh: Mesh, log: AttackLog) -> None:
        self._mesh, self._log = mesh, log
        self._bodies = victims.request_bodies(_CLIENTS, _TOKENS, seed=1000)
        self._expected: list[list[object]] = []

    async def learn(self) -> None:
        """Reads the answer to each question once, undisturbed."""
        self._expected = await victims.references(self._mesh.urls, self._mesh.keys[ATTACKER], self._bodies)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """All clients send at once; after the block all streams have ended, and a wrong stream is a problem."""
        urls, key = self._mesh.urls, self._mesh.keys[ATTACKER]
        async with client() as http, asyncio.TaskGroup() as group:
            numbered = enumerate(self._bodies)
            readers = [group.create_task(read(http, urls, key, body, number)) for number, body in numbered]
            yield
            for record in await asyncio.gather(*readers):
                self._judge(victims.compare(record, self._expected[record.number]))

    def _judge(self, record: StreamRecord) -> None:
        self._log.answer(record.outcome)
        if record.outcome in OUTCOMES:
            self._log.problem(f"a client's stream {record.outcome}: {record.request}, {record.why}")


async def _both_gateways(mesh: Mesh, log: AttackLog) -> None:
    """Both gateways die in mid-stream, and again when clients have just resumed."""
    clients, draw = _Clients(mesh, log), random.Random(1)
    ports = [int(url.rpartition(":")[2]) for url in mesh.urls]
    await clients.learn()
    for _ in range(_ROUNDS):
        await mesh.ready()
        async with clients.reading():
            await asyncio.sleep(draw.uniform(0, 0.5))
            mesh.kill("gateway")
            await until(lambda: not any(listens(port) for port in ports))
            await until(lambda: all(listens(port) for port in ports))
            await asyncio.sleep(draw.uniform(0, 0.5))
            mesh.kill("gateway")


async def _broker_and_gateway(mesh: Mesh, log: AttackLog) -> None:
    """The broker dies, clients send, and a gateway dies before the broker is back."""
    clients = _Clients(mesh, log)
    await clients.learn()
    for number in range(_ROUNDS):
        await mesh.ready()
        mesh.broker.kill()
        async with clients.reading():
            try:
                await asyncio.sleep(_AWAY_S / 4 * (number % 3))
                mesh.kill("gateway", number % len(mesh.urls))
                await asyncio.sleep(_AWAY_S)
            finally:
                await mesh.broker.start()


async def _gateway_and_verifier(mesh: Mesh, log: AttackLog) -> None:
    """A gateway and a verifier die at once."""
    clients = _Clients(mesh, log)
    await clients.learn()
    for number in range(_ROUNDS):
        await mesh.ready()
        async with clients.reading():
            await asyncio.sleep(0.1 * number)
            mesh.kill("gateway", number % 2)
            mesh.kill("verifier", number // 2 % 2)


ATTACKS = [
    Attack("death-gateways", "Both gateways die, and again while 40 clients come back.", _both_gateways,
           kills=frozenset({"gateway"}), stall_s=KILLED_STALL_S, refused=True, most_s=600),
    Attack("death-broker-gateway", "The broker is away, 40 clients ask, and a gateway dies before it is back.",
           _broker_and_gateway, kills=frozenset({"gateway", "nats"}), stall_s=KILLED_STALL_S, refused=True, most_s=600),
    Attack("death-gateway-verifier", "A gateway and a verifier die at once while 40 clients read.",
           _gateway_and_verifier, kills=frozenset({"gateway", "verifier"}), stall_s=KILLED_STALL_S, refused=True,
           most_s=600),
]  # fmt: skip
