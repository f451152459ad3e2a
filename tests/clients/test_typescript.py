"""The TypeScript client that `make typescript` compiled, in node and against a real mesh."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from outrider.gateway.errors import DeadlinePassed, MethodNotAllowed, TimedOut, TooLarge, UnknownModel, error_answer
from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Bucket, Bus
from outrider.mesh.errors import ERRORS, DeadlineUnmeetable
from outrider.wire.tenants import BUCKET, Limits
from outrider_client.errors import ErrorBody, error_of_answer, error_of_event

from tests.gateway.stack import Stack
from tests.gateway.streaming import Gateway
from tests.gateway.tenants import TenantStore

PROJECT = Path(__file__).parents[2] / "clients" / "typescript"
TESTS = PROJECT / "test"


def _why_not() -> str:
    """The reason why these tests cannot run; empty if they can."""
    if shutil.which("node") is None:
        return "there is no node"
    built = [path.stat().st_mtime for path in (PROJECT / "dist").glob("*.js")]
    if not built or min(built) < max(path.stat().st_mtime for path in (PROJECT / "src").glob("*.ts")):
        return "the client is not compiled, or is older than its sources: make typescript"
    return ""


pytestmark = [pytest.mark.timeout(300), pytest.mark.skipif(bool(_why_not()), reason=_why_not())]


def node(*scripts: Path, **environment: object) -> None:
    """Runs test files in node; fails with their output if a test fails."""
    given = os.environ | {name: str(value) for name, value in environment.items()}
    command = ["node", "--test", "--test-reporter=tap", *map(str, scripts)]
    ran = subprocess.run(command, cwd=PROJECT, env=given, capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_its_parts_work() -> None:
    node(*TESTS.glob("*.test.js"))


def test_its_errors_are_those_of_the_python_client() -> None:
    error_bodies = [
        (kind.http_status, msgspec.json.encode(error_answer(kind("why", param="place"))))
        for kind in (*ERRORS, MethodNotAllowed, TimedOut, TooLarge, UnknownModel, DeadlinePassed, DeadlineUnmeetable)
    ]
    answers = [(status, body.decode(), type(error_of_answer(status, body)).__name__) for status, body in error_bodies]
    events = [(body, type(error_of_event(_error(body), None)).__name__) for _, body, _ in answers]
    node(TESTS / "mesh" / "errors.js", CASES=json.dumps({"answers": answers, "events": events}))


def test_it_streams_resumes_and_cancels(one: Gateway, other: Gateway) -> None:
    nowhere = f"http://127.0.0.1:{hold_port()}"
    node(TESTS / "mesh" / "streams.js", ONE=one.url, OTHER=other.url, NOWHERE=nowhere)


async def test_gateways_may_freeze_and_die(streaming: Stack, other: Gateway) -> None:
    victim = Gateway(streaming)
    await victim.ready()
    node(TESTS / "mesh" / "gone.js", VICTIM=victim.url, VICTIM_PID=victim.process.pid, OTHER=other.url)
    victim.process.kill()


async def test_responses_outlive_their_gateway(streaming: Stack, other: Gateway) -> None:
    victim = Gateway(streaming)
    await victim.ready()
    node(TESTS / "mesh" / "responses.js", VICTIM=victim.url, VICTIM_PID=victim.process.pid, OTHER=other.url)
    victim.process.kill()


@pytest.fixture
async def tenant_store(streaming: Stack) -> AsyncIterator[TenantStore]:
    bus = Bus()
    await bus.connect(streaming.broker.url, "test", wait_s=10)
    yield TenantStore(Bucket(bus, BUCKET))
    await bus.close()


async def test_keys_are_sent_and_limits_waited_for(streaming: Stack, other: Gateway, tenant_store: TenantStore) -> None:
    port = hold_port()
    keyed = streaming.add("gateway", port=port, auth="keys")
    keyed.wait_ready()
    _, text = await tenant_store.key(Limits(concurrent_streams=1))
    node(TESTS / "mesh" / "limits.js", KEYED=f"http://127.0.0.1:{port}", KEY=text)
    keyed.stop()


def _error(body: str) -> ErrorBody:
    return msgspec.convert(json.loads(body)["error"], ErrorBody)
