"""Each hostile input once, against one gateway: the answer is the one that the table names, and nothing ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import nats
import pytest

from tests.gateway.hostile.case import ANSWER_S, Target
from tests.gateway.hostile.noise import faults_over_grpc, faults_over_nats
from tests.gateway.hostile.table import CASES, markdown
from tests.gateway.stack import MODEL, RUNNING, WAITING, Stack, stack
from tests.processes import ServiceProcess

pytestmark = pytest.mark.timeout(300)  # whichever test comes first waits for a mesh to start

DOCUMENT = Path(__file__).parents[3] / "docs" / "hostile-input.md"
BODY_BYTES, CONNECTIONS = 4 << 20, 30


@pytest.fixture(scope="module")
def alone(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A mesh of its own: gateways that ask for keys must not answer over NATS in the place of this one."""
    with stack(directory, tmp_path_factory.mktemp("logs"), stores=True) as made:
        made.add_model("tokenizer")
        made.add_model("verifier", max_running=RUNNING, max_waiting=WAITING)
        yield made


@pytest.fixture(scope="module")
def gateway(alone: Stack) -> ServiceProcess:
    """A gateway with all APIs, which is soon tired of waiting."""
    bounds = {"max_body_bytes": BODY_BYTES, "max_connections_per_address": CONNECTIONS}
    made = alone.add("gateway", port=alone.port, grpc_port=alone.grpc_port, header_s=0.5, body_idle_s=0.5, **bounds)
    alone.wait_ready()
    return made


@pytest.fixture
async def target(alone: Stack, gateway: ServiceProcess) -> AsyncIterator[Target]:
    headers = {"content-type": "application/json"}
    async with httpx.AsyncClient(base_url=alone.url, headers=headers, timeout=ANSWER_S, trust_env=False) as http:
        client = await nats.connect(alone.broker.url)
        yield Target(alone.url, alone.grpc, client, http, MODEL, body_bytes=BODY_BYTES, connections=CONNECTIONS)
        await client.close()


@pytest.mark.parametrize("name", CASES)
async def test_a_hostile_input_has_the_answer_that_the_table_names(
    name: str, target: Target, gateway: ServiceProcess
) -> None:
    pids = gateway.pid
    assert not (fault := CASES[name].fault(await CASES[name].run(target))), fault
    assert (gateway.pid, gateway.alive) == (pids, True)


@pytest.mark.parametrize("faults", [faults_over_grpc, faults_over_nats])
async def test_noise_is_refused_and_nothing_ends(
    faults: Callable[[Target], AsyncIterator[str]], target: Target, gateway: ServiceProcess
) -> None:
    pids = gateway.pid
    assert not [fault async for fault in faults(target)]
    assert (gateway.pid, gateway.alive) == (pids, True)


def test_the_table_in_the_document_is_that_of_the_cases() -> None:
    assert len(CASES) >= 60
    assert markdown() in DOCUMENT.read_text()
