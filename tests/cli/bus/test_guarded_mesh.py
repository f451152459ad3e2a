"""A whole mesh on the broker that `outrider up` starts with users of its own."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from outrider.cli.bus.directory import BusDirectory
from outrider.mesh.access import BROKERS
from outrider.mesh.bus import Bus
from outrider.mesh.errors import Unavailable
from outrider_client import ConnectionFailedError
from outrider_client import nats as over_nats

from tests.cli.calls import outrider
from tests.cli.running import Up
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(300)

PROMPT = {"prompt": "def f(", "max_tokens": 60, "seed": 3, "ignore_eos": True}


@pytest.fixture(scope="module", autouse=True)
def runtime() -> Iterator[None]:
    """A place of this module's own for links to meshes; paths of sockets have to be short."""
    folder = tempfile.mkdtemp(prefix="o-")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        yield
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def up(logs: Path) -> Iterator[Up]:
    made = Up("--proposers", "1", "--kvcaches", "1", "--log-dir", str(logs), "--set", "gateway.auth=keys")
    made.wait_for("Ctrl-C drains")
    yield made
    made.kill()


@pytest.fixture(scope="module")
def url(up: Up) -> str:
    return up.wait_for(r"serves at (\S+)")[0][1]


@pytest.fixture(scope="module")
def nats_url(up: Up) -> str:
    return up.wait_for(r"over NATS at (\S+)\.\n")[0][1]


@pytest.fixture
def users(logs: Path) -> BusDirectory:
    return BusDirectory(logs / "bus")


@pytest.fixture(scope="module")
def key(nats_url: str) -> str:
    """A tenant's API key; the commands find their own seed."""
    assert outrider("tenants", "set", "acme", "--nats-url", nats_url).returncode == 0
    return outrider("keys", "create", "--tenant", "acme", "--nats-url", nats_url).stdout.strip()


def whole(url: str, key: str) -> str:
    headers = {"authorization": f"Bearer {key}"}
    answer = httpx.post(f"{url}/v1/completions", json=PROMPT, headers=headers, timeout=120)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


def test_the_seeds_are_on_no_command_line_and_in_no_log(up: Up, logs: Path, users: BusDirectory) -> None:
    seeds = [path.read_text() for path in users.path.glob("*.nk")]
    assert len(seeds) == 9
    seen = "".join(path.read_text() for path in logs.glob("*.log")) + "".join(up.lines)
    for kind in ("nats", "gateway", "verifier", "proposer", "tokenizer", "kvcache"):
        for pid in up.pids(kind):
            seen += Path(f"/proc/{pid}/cmdline").read_text() + Path(f"/proc/{pid}/environ").read_text()
    assert not [seed for seed in seeds if seed in seen]


async def test_a_client_with_the_key_reads_the_same_answer_and_resumes_it(url: str, nats_url: str, key: str) -> None:
    expected = await asyncio.to_thread(whole, url, key)
    async with over_nats.AsyncClient(nats_url, api_key=key) as client:
        async with client.stream(**PROMPT) as stream:
            chunks = [chunk async for chunk in stream]
        assert "".join(chunk.text for chunk in chunks) == expected
        async with client.resume(stream.id, [0]) as again:
            assert "".join([chunk.text async for chunk in again]) == expected


async def test_a_client_without_a_key_is_refused(nats_url: str) -> None:
    async with over_nats.AsyncClient(nats_url, timeout=2, max_retries=0) as client:
        with pytest.raises(ConnectionFailedError, match="Authorization Violation"):
            await client.models()


async def test_a_process_without_a_seed_is_told_what_it_lacks(nats_url: str) -> None:
    bus = Bus()
    with pytest.raises(Unavailable, match="nats_credentials"):
        await bus.connect(nats_url, "stranger", wait_s=1)
    await bus.close()


def test_commands_find_the_seed_of_the_same_user(nats_url: str, key: str, users: BusDirectory) -> None:
    assert BROKERS.find(nats_url) == users.path.resolve()
    assert key.startswith("sk-")


def test_commands_find_the_broker_that_the_same_user_runs(up: Up) -> None:
    assert outrider("tenants", "set", "found").returncode == 0
    assert "found" in outrider("tenants", "list").stdout


async def test_the_mesh_outlives_its_broker(up: Up, url: str, nats_url: str, key: str) -> None:
    expected = await asyncio.to_thread(whole, url, key)
    os.kill(up.pids("nats")[-1], signal.SIGKILL)
    await asyncio.to_thread(up.wait_for, r"✓ nats", 2)
    await eventually(lambda: httpx.get(f"{url}/readyz", timeout=5).status_code == 200, 60)
    assert await asyncio.to_thread(whole, url, key) == expected
    async with over_nats.AsyncClient(nats_url, api_key=key) as client:
        assert (await client.complete(**PROMPT)).text == expected


def test_no_service_tried_what_is_forbidden_to_it(logs: Path) -> None:
    assert not [log.name for log in logs.glob("*.log") if "the broker forbids this" in log.read_text()]


def test_the_note_of_the_broker_ends_with_the_mesh(up: Up, nats_url: str) -> None:
    up.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 120
    while up.process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert up.process.returncode == 0
    assert BROKERS.find(nats_url) is None
    assert re.search("Stopped", "".join(up.lines))
