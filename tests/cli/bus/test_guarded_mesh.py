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
from outrider.cli.bus.rights import client_user
from outrider.cli.bus.seeds import public_key
from outrider.mesh.access import BROKERS
from outrider.mesh.bus import Bus, Login
from outrider.mesh.errors import Unavailable
from outrider.wire.frames import token_subject
from outrider_client import ConnectionFailedError
from outrider_client import nats as over_nats

from tests.cli.commands import outrider
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
    made = Up("--proposers", "1", "--kvcaches", "1", "--log-dir", str(logs))
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


def whole(url: str) -> str:
    answer = httpx.post(f"{url}/v1/completions", json=PROMPT, timeout=120)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


def test_the_seeds_are_on_no_command_line_and_in_no_log(up: Up, logs: Path, users: BusDirectory) -> None:
    seeds = [path.read_text() for path in users.path.glob("*.nk")]
    assert len(seeds) == 8
    seen = "".join(path.read_text() for path in logs.glob("*.log")) + "".join(up.lines)
    for kind in ("nats", "gateway", "verifier", "proposer", "tokenizer", "kvcache"):
        for pid in up.pids(kind):
            seen += Path(f"/proc/{pid}/cmdline").read_text() + Path(f"/proc/{pid}/environ").read_text()
    assert not [seed for seed in seeds if seed in seen]


async def test_a_client_with_the_seed_reads_the_same_answer_and_resumes_it(
    url: str, nats_url: str, users: BusDirectory
) -> None:
    expected = await asyncio.to_thread(whole, url)
    async with over_nats.AsyncClient(nats_url, seed=users.client("default")) as client:
        async with client.stream(**PROMPT) as stream:
            chunks = [chunk async for chunk in stream]
        assert "".join(chunk.text for chunk in chunks) == expected
        async with client.resume(stream.id, [0]) as again:
            assert "".join([chunk.text async for chunk in again]) == expected


async def test_a_client_without_a_seed_is_refused(nats_url: str) -> None:
    async with over_nats.AsyncClient(nats_url, timeout=2, max_retries=0) as client:
        with pytest.raises(ConnectionFailedError, match="Authorization Violation"):
            await client.models()


async def test_a_process_without_a_seed_is_told_what_it_lacks(nats_url: str) -> None:
    bus = Bus()
    with pytest.raises(Unavailable, match="does not know this user: set nats_credentials"):
        await bus.connect(nats_url, "stranger", wait_s=1)
    await bus.close()


def test_commands_find_the_seed_of_the_same_user(nats_url: str, users: BusDirectory) -> None:
    assert BROKERS.find(nats_url) == users.path.resolve()
    assert outrider("tenants", "set", "acme", "--nats-url", nats_url).returncode == 0
    created = outrider("keys", "create", "--tenant", "acme", "--nats-url", nats_url)
    assert created.stdout.startswith("sk-")


def test_commands_find_the_broker_that_the_same_user_runs(up: Up) -> None:
    assert outrider("tenants", "set", "found").returncode == 0
    assert "found" in outrider("tenants", "list").stdout


async def test_an_issued_user_may_read_its_tenant_at_once(nats_url: str, users: BusDirectory) -> None:
    issued = await asyncio.to_thread(outrider, "bus", "issue", str(users.path), "--tenant", "acme")
    assert (issued.returncode, issued.stderr) == (0, "")
    seed, bus = Path(issued.stdout.strip()), Bus()
    await bus.connect(nats_url, "acme", 30, Login(client_user(public_key(seed)), seed))
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    await bus.subscribe(token_subject("acme", "*"), lambda message: heard.put_nowait(message.data))
    verifier = Bus()
    await verifier.connect(nats_url, "test", 10, Login("verifier", users.seed("verifier")))
    verifier.publish(token_subject("acme", "r"), b"frame")
    assert await heard.get() == b"frame"
    for each in (bus, verifier):
        await each.close()


async def test_the_mesh_outlives_its_broker(up: Up, url: str, nats_url: str, users: BusDirectory) -> None:
    expected = await asyncio.to_thread(whole, url)
    os.kill(up.pids("nats")[-1], signal.SIGKILL)
    await asyncio.to_thread(up.wait_for, r"✓ nats", 2)
    await eventually(lambda: httpx.get(f"{url}/readyz", timeout=5).status_code == 200, 60)
    assert await asyncio.to_thread(whole, url) == expected
    async with over_nats.AsyncClient(nats_url, seed=users.client("default")) as client:
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
