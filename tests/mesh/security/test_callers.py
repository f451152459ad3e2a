"""Each kind of process tried at each method of each service, over TLS with real certificates."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub
from outrider.mesh.rpc import Server, channel, close_channels, secure_channels
from outrider.mesh.rpc.callers import EVERY, MAY_CALL
from outrider.mesh.security import KINDS, Certificates
from outrider.v1 import (
    calls_pb2,
    calls_pb2_grpc,
    inference_pb2,
    kvcache_pb2,
    kvcache_pb2_grpc,
    proposer_pb2,
    proposer_pb2_grpc,
    tokenizer_pb2,
    tokenizer_pb2_grpc,
    verifier_pb2,
    verifier_pb2_grpc,
)

from tests.certificates import Certified

SERVICES: dict[str, ServiceDescriptor] = {
    name: module.DESCRIPTOR.services_by_name[name]
    for name, module in {
        "Tokenizer": tokenizer_pb2,
        "Verifier": verifier_pb2,
        "Proposer": proposer_pb2,
        "KvCache": kvcache_pb2,
    }.items()
}
CALLS = calls_pb2.DESCRIPTOR.services_by_name["Calls"]
MAY = {
    ("gateway", "Tokenizer"),
    ("gateway", "Verifier"),
    ("verifier", "Proposer"),
    ("verifier", "KvCache"),
}
"""Who may call what, beside the code's own table."""


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Certified:
    return Certified(tmp_path_factory.mktemp("authority"))


@pytest.fixture
async def server(certified: Certified) -> AsyncIterator[Server]:
    """A verifier's server that has all services of the mesh; none of their methods does anything."""
    server = Server(certificates=certified.certificates("verifier"))
    tokenizer_pb2_grpc.add_TokenizerServicer_to_server(tokenizer_pb2_grpc.TokenizerServicer(), server)
    verifier_pb2_grpc.add_VerifierServicer_to_server(verifier_pb2_grpc.VerifierServicer(), server)
    proposer_pb2_grpc.add_ProposerServicer_to_server(proposer_pb2_grpc.ProposerServicer(), server)
    kvcache_pb2_grpc.add_KvCacheServicer_to_server(kvcache_pb2_grpc.KvCacheServicer(), server)
    await server.start()
    await server.set_serving(True)
    yield server
    await close_channels()
    await server.stop(0)


async def answer(to_server: grpc.aio.Channel, method: MethodDescriptor) -> tuple[grpc.StatusCode, str]:
    """Code and sentence of a call with an empty request, or with none yet where requests are a stream.

    grpc.aio reports INTERNAL in place of the status where that comes while a request is written.
    """
    sends = "stream" if method.client_streaming else "unary"
    gets = "stream" if method.server_streaming else "unary"
    path = f"/{method.containing_service.full_name}/{method.name}"
    call: Any = getattr(to_server, f"{sends}_{gets}")(path)
    started = call(timeout=20) if method.client_streaming else call(b"", timeout=20)
    return await started.code(), await started.details()


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_kind_reaches_the_methods_that_it_may_call_and_no_others(
    kind: str, service: str, certified: Certified, server: Server
) -> None:
    secure_channels(certified.certificates(kind))
    to_server = channel(f"127.0.0.1:{server.port}", "verifier")
    for method in SERVICES[service].methods:
        code, sentence = await answer(to_server, method)
        if (kind, service) in MAY:
            assert code is grpc.StatusCode.UNIMPLEMENTED
        else:
            assert code is grpc.StatusCode.PERMISSION_DENIED
            assert sentence.startswith(f"a {kind} may not call outrider.v1.{service}: only a ")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_shared_stream_reaches_the_methods_that_its_caller_may_call_alone(
    kind: str, certified: Certified, server: Server
) -> None:
    secure_channels(certified.certificates(kind))
    methods = [each for service in SERVICES.values() for each in service.methods]
    methods = [each for each in methods if not (each.server_streaming or each.client_streaming)]
    paths = [f"/{method.containing_service.full_name}/{method.name}" for method in methods]
    stream = calls_pb2_grpc.CallsStub(channel(f"127.0.0.1:{server.port}", "verifier")).Exchange(timeout=20)
    if kind != "gateway":
        assert await stream.code() is grpc.StatusCode.PERMISSION_DENIED
        return
    await stream.write(calls_pb2.CallBatch(calls=[calls_pb2.Call(number=i, method=m) for i, m in enumerate(paths)]))
    await stream.done_writing()
    codes: dict[str, int] = {}
    with suppress(grpc.aio.AioRpcError):  # the servicers' methods, which do nothing, set the status of the stream
        async for batch in stream:
            codes |= {paths[answer.number]: answer.failure.code for answer in batch.answers}
    denied, missing = grpc.StatusCode.PERMISSION_DENIED.value[0], grpc.StatusCode.UNIMPLEMENTED.value[0]
    services = {path: path.split("/")[1].rpartition(".")[2] for path in paths}
    assert codes == {path: missing if (kind, service) in MAY else denied for path, service in services.items()}


@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_may_ask_for_health(kind: str, certified: Certified, server: Server) -> None:
    secure_channels(certified.certificates(kind))
    stub = health_pb2_grpc.HealthStub(channel(f"127.0.0.1:{server.port}", "verifier"))
    assert (await stub.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_may_ask_for_descriptions(kind: str, certified: Certified, server: Server) -> None:
    secure_channels(certified.certificates(kind))
    stub = ServerReflectionStub(channel(f"127.0.0.1:{server.port}", "verifier"))
    asked = iter([ServerReflectionRequest(list_services="")])
    (answer,) = [answer async for answer in stub.ServerReflectionInfo(asked)]
    assert "outrider.v1.KvCache" in {service.name for service in answer.list_services_response.service}


async def test_a_certificate_of_another_trust_domain_is_refused_though_the_authority_is_trusted(
    certified: Certified, server: Server, tmp_path: Path
) -> None:
    foreign = Certified(tmp_path / "foreign", "elsewhere.internal")
    both = tmp_path / "both.crt"
    both.write_bytes(certified.ca.read_bytes() + foreign.ca.read_bytes())
    own = certified.issue("verifier", name="trusting")
    trusting = Server(certificates=Certificates(replace(own, authorities=both)))
    tokenizer_pb2_grpc.add_TokenizerServicer_to_server(tokenizer_pb2_grpc.TokenizerServicer(), trusting)
    await trusting.start()
    await trusting.set_serving(True)
    secure_channels(Certificates(replace(foreign.issue("gateway"), authorities=both)))
    to_server = channel(f"localhost:{trusting.port}")
    code, sentence = await answer(to_server, SERVICES["Tokenizer"].methods[0])
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert "a gateway of elsewhere.internal may not call outrider.v1.Tokenizer" in sentence
    await trusting.stop(0)


async def test_a_refused_caller_does_not_learn_that_the_service_starts(certified: Certified) -> None:
    starting = Server(certificates=certified.certificates("verifier"))
    await starting.start()
    secure_channels(certified.certificates("client"))
    code, _ = await answer(channel(f"127.0.0.1:{starting.port}", "verifier"), SERVICES["Verifier"].methods[0])
    assert code is grpc.StatusCode.PERMISSION_DENIED
    await close_channels()
    await starting.stop(0)


def test_the_documentation_has_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
    section = page.partition("## Who may call what\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\S+)` \| (.+) \|$", section, re.MULTILINE))
    assert rows == {
        service: "all" if kinds == EVERY else ", ".join(sorted(kinds)) for service, kinds in MAY_CALL.items()
    }


def test_the_table_has_every_service_of_the_mesh_and_only_kinds_that_exist() -> None:
    public = inference_pb2.DESCRIPTOR.services_by_name["Inference"].full_name
    own = {name for name in MAY_CALL if name.startswith("outrider.")}
    assert own == {service.full_name for service in SERVICES.values()} | {CALLS.full_name}
    assert public not in own
    assert set().union(*MAY_CALL.values()) <= set(KINDS)
