"""Each hostile input once, against one gateway: the answer is the one that the table names, and nothing ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import nats
import pytest
from outrider.loadtest.hostile.case import ANSWER_S, Target
from outrider.loadtest.hostile.table import CASES, markdown
from outrider.mesh.addresses import hold_port

from tests.gateway.stack import MODEL, Stack
from tests.processes import ServiceProcess

pytestmark = pytest.mark.timeout(300)  # whichever test comes first waits for a mesh to start

DOCUMENT = Path(__file__).parents[3] / "docs" / "hostile-input.md"
BODY_BYTES, CONNECTIONS = 4 << 20, 30


@pytest.fixture(scope="module")
def addresses() -> tuple[int, int]:
    return hold_port(), hold_port()


@pytest.fixture(scope="module")
def gateway(shared: Stack, addresses: tuple[int, int]) -> ServiceProcess:
    """A gateway with all doors, which is soon tired of waiting."""
    port, grpc_port = addresses
    bounds = {"max_body_bytes": BODY_BYTES, "max_connections_per_address": CONNECTIONS}
    made = shared.add("gateway", port=port, grpc_port=grpc_port, header_s=0.5, body_idle_s=0.5, **bounds)
    made.wait_ready()
    return made


@pytest.fixture
async def target(shared: Stack, gateway: ServiceProcess, addresses: tuple[int, int]) -> AsyncIterator[Target]:
    url, grpc = f"http://127.0.0.1:{addresses[0]}", f"127.0.0.1:{addresses[1]}"
    headers = {"content-type": "application/json"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=ANSWER_S, trust_env=False) as http:
        client = await nats.connect(shared.broker.url)
        yield Target(url, grpc, client, http, MODEL, body_bytes=BODY_BYTES, connections=CONNECTIONS)
        await client.close()


@pytest.mark.parametrize("name", CASES)
async def test_a_hostile_input_has_the_answer_that_the_table_names(
    name: str, target: Target, gateway: ServiceProcess
) -> None:
    pids = gateway.pid
    assert not (fault := CASES[name].fault(await CASES[name].run(target))), fault
    assert (gateway.pid, gateway.alive) == (pids, True)


def test_the_table_in_the_document_is_that_of_the_cases() -> None:
    assert len(CASES) >= 60
    assert markdown() in DOCUMENT.read_text()
