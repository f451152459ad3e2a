"""Each gRPC method at the gateway's API, called with no key, with a false one, and with those of two tenants."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from outrider.v1 import inference_pb2, kvcache_pb2, proposer_pb2, tokenizer_pb2, verifier_pb2
from outrider.wire.tenants import new_key

from tests.security.secured import Secured

WITH_KEY = {
    ("Inference", "Generate"),
    ("Inference", "Complete"),
    ("Inference", "Resume"),
    ("Inference", "Cancel"),
    ("Inference", "ListModels"),
    ("Inference", "Tokenize"),
    ("Inference", "Detokenize"),
}
OPEN = {("Health", "Check"), ("ServerReflection", "ServerReflectionInfo")}
NOT_SERVED = ("Tokenizer", "Verifier", "Proposer", "KvCache")
"""Services of the mesh, which are no business of clients."""
MODULES = (inference_pb2, tokenizer_pb2, verifier_pb2, proposer_pb2, kvcache_pb2, health_pb2, reflection_pb2)
SERVICES: dict[str, ServiceDescriptor] = {
    name: service for module in MODULES for name, service in module.DESCRIPTOR.services_by_name.items()
}
CODE = grpc.StatusCode


@pytest.fixture
async def channel(secured: Secured) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(secured.grpc) as made:
        yield made


async def called(channel: grpc.aio.Channel, method: MethodDescriptor, key: str = "") -> tuple[grpc.StatusCode, str]:
    """Code and sentence of a call with an empty request."""
    sends = "stream" if method.client_streaming else "unary"
    gets = "stream" if method.server_streaming else "unary"
    call: Any = getattr(channel, f"{sends}_{gets}")(f"/{method.containing_service.full_name}/{method.name}")
    metadata = (("authorization", f"Bearer {key}"),) if key else ()
    started = call(iter([b""]) if method.client_streaming else b"", metadata=metadata, timeout=20)
    with suppress(grpc.aio.AioRpcError):
        if method.server_streaming:
            async for _ in started:
                pass
    return await started.code(), await started.details()


def test_every_method_of_the_gateway_is_in_the_list() -> None:
    assert {("Inference", method.name) for method in SERVICES["Inference"].methods} == WITH_KEY


@pytest.mark.parametrize(("service", "name"), sorted(WITH_KEY))
async def test_a_method_that_needs_a_key_refuses_who_has_none(
    channel: grpc.aio.Channel, keys: Mapping[str, str], service: str, name: str
) -> None:
    method = SERVICES[service].methods_by_name[name]
    for key in ("", "sk-false", new_key("acme", 0)[1]):
        code, sentence = await called(channel, method, key)
        assert code is CODE.UNAUTHENTICATED
        assert "API key" in sentence
    for key in keys.values():
        code, _ = await called(channel, method, key)
        assert code not in (CODE.UNAUTHENTICATED, CODE.PERMISSION_DENIED)


@pytest.mark.parametrize(("service", "name"), sorted(OPEN))
async def test_anybody_may_ask_for_health_and_for_descriptions(
    channel: grpc.aio.Channel, service: str, name: str
) -> None:
    code, _ = await called(channel, SERVICES[service].methods_by_name[name])
    assert code is CODE.OK


@pytest.mark.parametrize("service", NOT_SERVED)
async def test_services_of_the_mesh_are_not_at_the_gateway(
    channel: grpc.aio.Channel, keys: Mapping[str, str], service: str
) -> None:
    """Now and then grpc.aio says INTERNAL where a stream of requests meets a method that does not exist."""
    for method in SERVICES[service].methods:
        for key in ("", *keys.values()):
            code, _ = await called(channel, method, key)
            assert code is CODE.UNIMPLEMENTED or (method.client_streaming and code is CODE.INTERNAL)
