"""A mesh whose streams can be resumed: several gateways and verifiers on a broker with JetStream."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import httpx
from outrider.mesh.addresses import hold_port
from outrider.mesh.registry import Registry
from outrider.mesh.rpc import channel
from outrider.v1 import verifier_pb2 as pb
from outrider.v1.verifier_pb2_grpc import VerifierStub
from outrider.wire.frames import Finish, decode_frame

from tests.gateway.stack import Stack
from tests.processes import ServiceProcess


class Gateway:
    """A gateway of the mesh; its streams wait ``patience_s`` seconds for a reader."""

    def __init__(self, mesh: Stack, patience_s: float = 100, **more: object) -> None:
        self.port, self.grpc_port = hold_port(), hold_port()
        waits = {"lease_s": patience_s, "linger_s": patience_s, "silence_s": 0.5, "place_s": 240, "resume_s": 240}
        settings: dict[str, object] = waits | more
        self.process: ServiceProcess = mesh.add("gateway", port=self.port, grpc_port=self.grpc_port, **settings)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def grpc(self) -> str:
        """Its address for gRPC."""
        return f"127.0.0.1:{self.grpc_port}"

    async def ready(self) -> None:
        """Returns when a completion would succeed."""
        async with httpx.AsyncClient(base_url=self.url, timeout=5, trust_env=False) as http:
            while not await _answers(http):
                assert self.process.alive, self.process.log.read_text()
                await asyncio.sleep(0.2)

    async def certain(self) -> None:
        """Returns when a completion would succeed, and an unknown stream is 404, which it is not at once."""
        await self.ready()
        async with httpx.AsyncClient(base_url=self.url, timeout=5, trust_env=False) as http:
            await once_certain(http, "GET", "/v1/streams/unheard-of")

    def count(self, name: str) -> float:
        """Sum of a metric."""
        lines = httpx.get(f"{self.url}/metrics", timeout=5).text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"outrider_gateway_{name}"))


async def _answers(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.get("/readyz")).status_code == 200
    except httpx.TransportError:
        return False


async def once_certain(http: httpx.AsyncClient, method: str, url: str, **more: Any) -> httpx.Response:
    """The answer once it is not 503: for seconds after the broker was away, a stream may be unrecorded."""
    async with asyncio.timeout(60):
        while (answer := await http.request(method, url, **more)).status_code == 503:
            await asyncio.sleep(0.2)
    return answer


async def spare(mesh: Stack) -> None:
    """Starts another verifier if there is only one, so that one may be killed."""
    alive = [each for each in mesh.processes if each.kind == "verifier" and each.alive]
    if len(alive) < 2:
        await asyncio.to_thread(mesh.add_model("verifier", instance=f"v{len(mesh.processes)}").wait_ready)


async def holder(registry: Registry, request: str) -> str:
    """The verifier that has a request."""
    for member in await registry.wait_for("verifier", bool, 240):
        call = VerifierStub(channel(member.address)).Follow(pb.FollowRequest(request_id=request))
        try:
            await call.read()
            return member.instance
        except grpc.aio.AioRpcError:
            continue
        finally:
            call.cancel()
    raise AssertionError("nobody has the request")


async def finish(registry: Registry, request: str) -> Finish | None:
    """The finish of a request at the verifier that has it, or had it last."""
    name = await holder(registry, request)
    member = next(member for member in registry.members("verifier") if member.instance == name)
    call = VerifierStub(channel(member.address)).Follow(pb.FollowRequest(request_id=request))
    return [decode_frame(response.frame).finish async for response in call][-1]
