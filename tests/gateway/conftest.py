"""A mesh that all tests of the gateway share; no test may stop its processes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Bucket, Bus
from outrider.mesh.registry import Registry
from outrider.wire.tenants import BUCKET

from tests.gateway.filtering import GUARD
from tests.gateway.stack import MODEL, RUNNING, WAITING, Stack, stack
from tests.gateway.tenants import TenantStore
from tests.latch import FEW, Latch
from tests.processes import ALWAYS
from tests.reading import reading

SUSPECT = {"abuse.prompt_choices": 5}
"""Rules of abuse of the first gateway that requires keys."""
NAMES = {"metrics_names": "both"}
MEASURED = {
    "metrics_tenants": "measured",
    "prices": json.dumps({MODEL: {"prompt": 2e6, "generated": 3e6}}),
    "slo_first_token_s": 600,
}
"""What the first gateway that requires keys measures."""


@pytest.fixture(scope="session")
def shared(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A tokenizer, a verifier with a short queue and a gateway."""
    with stack(directory, tmp_path_factory.mktemp("logs"), stores=True) as made:
        made.add(
            "gateway", port=made.port, grpc_port=made.grpc_port, max_body_bytes=1 << 20, nats_door="false", **NAMES
        )
        made.add_model("tokenizer", trace_exporter="console")
        made.add_model("verifier", instance="verifier", max_running=RUNNING, max_waiting=WAITING, **NAMES)
        made.wait_ready()
        yield made


@pytest.fixture
def shared_halted(shared: Stack) -> Iterator[Latch]:
    """Halts the requests of the shared mesh after `FEW` tokens."""
    with shared.latch.at(FEW):
        yield shared.latch


@pytest.fixture(scope="session")
def guessing(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A mesh with a good drafter, the target itself, and two cheap ones; all are asked at every step."""
    options = json.dumps({"model": {"model": str(directory)}})
    drafters = {"drafters": '["model", "suffix", "ngram"]', "program": ALWAYS, "options": options}
    with stack(directory, tmp_path_factory.mktemp("logs"), stores=True) as made:
        made.add("gateway", port=made.port, grpc_port=made.grpc_port, nats_door="false", speculation_metrics="true")
        made.add_model("tokenizer")
        made.add_model("verifier", **drafters)
        made.wait_ready()
        yield made


@pytest.fixture
async def registry(shared: Stack) -> AsyncIterator[Registry]:
    """The shared mesh's registry."""
    async with reading(shared.broker.url) as reader:
        yield reader


@pytest.fixture(scope="session")
def keyed_grpc() -> str:
    """The gRPC address of the first gateway that requires keys."""
    return f"127.0.0.1:{hold_port()}"


@pytest.fixture(scope="session")
def audit_log(shared: Stack) -> Path:
    """The audit log of the first gateway that requires keys."""
    return shared.logs / "audit.jsonl"


@pytest.fixture(scope="session")
def urls(shared: Stack, keyed_grpc: str, audit_log: Path) -> Iterator[list[str]]:
    """Two gateways with the filter `GUARD`; the second trusts this machine as a proxy."""
    ports = [hold_port(), hold_port()]
    grpc_port = keyed_grpc.partition(":")[2]
    common = {"auth": "keys", "filter_options": json.dumps(GUARD)}
    gateways = [
        shared.add("gateway", port=ports[0], grpc_port=grpc_port, audit_log=audit_log, **common, **SUSPECT, **MEASURED),
        shared.add("gateway", port=ports[1], trusted_proxies="127.0.0.0/8", **common),
    ]
    for gateway in gateways:
        gateway.wait_ready()
    yield [f"http://127.0.0.1:{port}" for port in ports]
    for gateway in gateways:
        gateway.stop()


@pytest.fixture
async def tenant_store(shared: Stack, urls: list[str]) -> AsyncIterator[TenantStore]:
    bus = Bus()
    await bus.connect(shared.broker.url, "test", wait_s=10)
    yield TenantStore(Bucket(bus, BUCKET))
    await bus.close()
