"""A mesh whose streams can be resumed: several gateways and verifiers on a broker that stores."""

from __future__ import annotations

import asyncio

import grpc
import httpx
from outrider.mesh.registry import Registry
from outrider.mesh.rpc import channel
from outrider.v1 import verifier_pb2 as pb
from outrider.v1.verifier_pb2_grpc import VerifierStub

from tests.broker import free_port
from tests.gateway.stack import Stack
from tests.processes import ServiceProcess
from tests.waiting import eventually


class Gateway:
    """A gateway of the mesh, and where it is."""

    def __init__(self, mesh: Stack) -> None:
        self.port = free_port()
        settings = {"lease_s": 1, "linger_s": 1, "silence_s": 0.5, "place_s": 30}
        self.process: ServiceProcess = mesh.add("gateway", port=self.port, **settings)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    async def ready(self) -> None:
        """Returns when a completion would succeed."""
        await asyncio.to_thread(self.process.wait_ready)
        await eventually(lambda: httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200, 60)

    def count(self, name: str) -> float:
        """Sum of a metric."""
        lines = httpx.get(f"{self.url}/metrics", timeout=5).text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"outrider_gateway_{name}"))


async def holder(registry: Registry, request: str) -> str:
    """The verifier that has a request."""
    for member in await registry.wait_for("verifier", bool, 10):
        call = VerifierStub(channel(member.address)).Follow(pb.FollowRequest(request_id=request))
        try:
            await call.read()
            return member.instance
        except grpc.aio.AioRpcError:
            continue
        finally:
            call.cancel()
    raise AssertionError("nobody has the request")


def load(registry: Registry) -> int:
    """Requests that verifiers have."""
    return sum(int(member.status["load"]) for member in registry.members("verifier"))
