"""Detection of a verifier's death through a gRPC health watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from outrider.mesh.registry import Member
from outrider.mesh.rpc import stub
from outrider.mesh.tasks import Tasks


class HealthWatches:
    """One open health watch per verifier.

    ``on_lost`` is called with the instance of a verifier whose watch broke, or that drains: it says NOT_SERVING.

    The watch of a killed process breaks within a round trip, that of a frozen process within the channel's keepalive.
    """

    def __init__(self, tasks: Tasks, on_lost: Callable[[str], None]) -> None:
        self._tasks = tasks
        self._on_lost = on_lost
        self._watches: dict[str, asyncio.Task[None]] = {}

    def start(self, member: Member) -> None:
        """Opens a watch on ``member`` unless there is one."""
        if member.instance not in self._watches:
            self._watches[member.instance] = self._tasks.spawn(self._watch(member), "health watch")

    async def _watch(self, member: Member) -> None:
        call = stub(HealthStub, member.address, member.kind).Watch(HealthCheckRequest())
        try:
            async for response in call:
                if response.status == HealthCheckResponse.NOT_SERVING:
                    break
        except grpc.aio.AioRpcError:
            pass  # any error means that the watch broke
        finally:
            call.cancel()
            del self._watches[member.instance]
        self._on_lost(member.instance)
