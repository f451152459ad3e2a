"""Fixtures of a real broker, and of whole meshes."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from hypothesis import HealthCheck, settings
from outrider.mesh.bus import Bus
from outrider.mesh.registry import Registry

from tests.broker import Broker
from tests.gateway.calls import save_calling
from tests.gateway.stack import Stack, save_model, stack
from tests.gateway.streaming import Gateway
from tests.latch import FEW, Latch
from tests.processes import ALWAYS
from tests.reading import reading
from tests.whole import is_whole

SHARED = ("calling", "guessing", "shared", "streaming")
"""Fixtures of meshes that live as long as the session."""
GROUPED = ("shared", "guessing", "streaming", "calling")
"""The same fixtures by priority: a file that uses several runs on the worker of the first."""
LONG = (
    "benches/kernels/test_report.py",
    "cli/test_up.py",
    "cli/test_trace_steps.py",
    "kernels/tree_attention/test_tree_attention_triton.py",
    "gateway/mesh/test_failures.py",
    "gateway/mesh/test_fatal_requests.py",
    "repo/test_wheel.py",
    "gateway/mesh/test_frozen.py",
    "verifier/test_kv_cache.py",
    "loadtest/attack/test_attacks.py",
    "engine/models/test_native.py",
    "native/test_program.py",
    "gateway/ledger/test_full_disk.py",
    "verifier/test_drafting_service.py",
    "gateway/api/own/test_prompts.py",
    "verifier/test_service.py",
    "mesh/test_lifecycle.py",
    "verifier/test_proposer_faults.py",
)
"""Files that take longest. They start right after the tests of shared meshes, so that workers end together."""
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
"""Hundreds of processes import the same modules; without bytecode each of them compiles all of Outrider again."""
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
"""Threads that spin for one another crawl on a busy machine; both are read when torch is first imported."""

if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")
"""Without a GPU, kernels run in Triton's interpreter; it is read when a kernel is first imported."""

_untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("anew", _untimed)
settings.register_profile("same", _untimed, derandomize=True)
settings.load_profile("same")
"""Every run tries the same examples, also on slow machines; `--hypothesis-profile anew` tries others."""

_create_ssl_context = httpx._transports.default.create_ssl_context


@cache
def _shared_ssl_context(file: str | None, folder: str | None) -> ssl.SSLContext:
    return _create_ssl_context()  # which reads both variables again


def _ssl_context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    if verify is True and cert is None and trust_env:
        return _shared_ssl_context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    return _create_ssl_context(verify, cert, trust_env)


httpx._transports.default.create_ssl_context = _ssl_context
"""Else each of thousands of clients reads all authorities anew, also those of `http` URLs: 0.07 s of a core."""

_plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
structlog.configure(processors=[*structlog.get_config()["processors"][:-1], _plain])
"""structlog's default shows the local variables of every frame, which takes a second a traceback."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups tests for `--dist loadgroup`: one worker runs all tests of a file, and all files that share a mesh.

    Long groups come first. Marks what only `make test-all` runs.
    """
    ranks = {group: rank for rank, group in enumerate((*GROUPED, *LONG))}
    groups = {}
    files = defaultdict(set)
    for item in items:
        files[item.path].update(name for name in SHARED if name in getattr(item, "fixturenames", ()))
    for item in items:
        group = next((name for name in GROUPED if name in files[item.path]), _name(item.path))
        item.add_marker(pytest.mark.xdist_group(group))
        if is_whole(f"{_name(item.path)}::{item.name}"):
            item.add_marker(pytest.mark.whole)
        groups[item] = group
    items.sort(key=lambda item: ranks.get(groups[item], len(ranks)))


@cache
def _name(file: Path) -> str:
    return os.path.relpath(file, Path(__file__).parent)


@pytest.fixture(scope="session")
def shared_nats() -> Iterator[str]:
    """URL of a nats-server that lives as long as the session; no test kills it."""
    broker = Broker()
    broker.start()
    yield broker.url
    broker.kill()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A nats-server for one test, which may stop and start it."""
    broker = Broker()
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture(scope="session")
def jetstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a nats-server with JetStream, which lives as long as the session."""
    broker = Broker()
    broker.start("--jetstream", "--store_dir", str(tmp_path_factory.mktemp("jetstream")))
    yield broker.url
    broker.kill()


@pytest.fixture
async def bus(shared_nats: str) -> AsyncIterator[Bus]:
    """A connection to the shared broker."""
    bus = Bus()
    await bus.connect(shared_nats, "test", wait_s=10)
    yield bus
    await bus.close()


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a toy model."""
    return save_model(tmp_path_factory.mktemp("models") / "toy")


@pytest.fixture(scope="session")
def calling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A mesh with drafters, whose model has special tokens for function calls."""
    model = save_calling(tmp_path_factory.mktemp("models"))
    with stack(model, tmp_path_factory.mktemp("logs"), stores=True) as made:
        made.add("gateway", port=made.port, grpc_port=made.grpc_port)
        made.add_model("tokenizer")
        made.add_model("verifier", drafters='["suffix", "ngram"]', program=ALWAYS)
        made.wait_ready()
        yield made


@pytest.fixture(scope="session")
def streaming(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A mesh with JetStream and without gateways; a test may kill a process if another of its kind stays."""
    with stack(directory, tmp_path_factory.mktemp("logs"), stores=True) as made:
        made.add_model("tokenizer")
        made.add_model("verifier", instance="first")
        yield made


@pytest.fixture(autouse=True)
def processes_live(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test if a process of a shared mesh has ended by itself; the message has its last log lines."""
    values = [request.getfixturevalue(name) for name in SHARED if name in request.fixturenames]
    meshes = [value for value in values if isinstance(value, Stack)]
    for mesh in meshes:
        mesh.check()
    yield
    for mesh in meshes:
        mesh.check()


@pytest.fixture
def halted(streaming: Stack) -> Iterator[Latch]:
    """Stops the requests of the mesh `streaming` after `FEW` tokens."""
    with streaming.latch.at(FEW):
        yield streaming.latch


@pytest.fixture(scope="session")
def other(streaming: Stack) -> Gateway:
    """A gateway of the mesh `streaming` that no test kills."""
    made = Gateway(streaming)
    asyncio.run(made.certain())
    return made


@pytest.fixture(scope="session")
def one(streaming: Stack, other: Gateway) -> Gateway:
    """A second gateway of the mesh `streaming` that no test kills."""
    made = Gateway(streaming)
    asyncio.run(made.certain())
    return made


@pytest.fixture
async def streaming_registry(streaming: Stack) -> AsyncIterator[Registry]:
    """The registry of the mesh `streaming`."""
    async with reading(streaming.broker.url) as reader:
        yield reader
