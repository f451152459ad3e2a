"""Noticing at once that a process died, by the end of a call that never ends otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub
from outrider.mesh.registry import Member
from outrider.mesh.rpc import stub
from outrider.mesh.tasks import Tasks


class Watch:
    """Holds a health watch on each member that it was shown; ``on_lost`` hears the instance whose watch broke.

    A killed process breaks it within a round trip, a frozen one within the channel's keepalive.
    """

    def __init__(self, tasks: Tasks, on_lost: Callable[[str], None]) -> None:
        self._tasks = tasks
        self._on_lost = on_lost
        self._watches: dict[str, asyncio.Task[None]] = {}

    def keep(self, member: Member) -> None:
        """Watches ``member`` from now on, if it is not watched already."""
        if member.instance not in self._watches:
            self._watches[member.instance] = self._tasks.spawn(self._watch(member), "health watch")

    async def _watch(self, member: Member) -> None:
        call = stub(HealthStub, member.address).Watch(HealthCheckRequest())
        try:
            async for _ in call:
                pass
        except grpc.aio.AioRpcError:
            pass  # broken, by whatever means: that is what was waited for
        finally:
            call.cancel()
            del self._watches[member.instance]
        self._on_lost(member.instance)
