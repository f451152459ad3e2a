"""A broker with a full disk: streams go on, and their records are written when there is space again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from outrider.gateway.admission.caller import Caller
from outrider.gateway.ledger.ledger import Ledger
from outrider.gateway.ledger.record import Key, Record
from outrider.gateway.request.models import ServedModel
from outrider.gateway.routing.job import Job
from outrider.gateway.settings import GatewaySettings
from outrider.mesh.bus import Bus
from outrider.mesh.errors import NotFound, Unavailable
from outrider.v1.sampling_pb2 import Speculation
from outrider.wire.sampling import SamplingParams

from tests.gateway.raw_streams import RawStream
from tests.gateway.stack import MODEL, Stack
from tests.gateway.streaming import Gateway, once_certain
from tests.small_store import SmallStore, small_store
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(300)  # whichever test comes first waits for a mesh to start

KINDS = ["limited", "full"]


@pytest.fixture(scope="module", params=KINDS)
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallStore]:
    with small_store(request.param, tmp_path_factory.mktemp("small")) as made:
        asyncio.run(made.prepare())
        yield made


@pytest.fixture
async def bus(small: SmallStore) -> AsyncIterator[Bus]:
    joined = Bus()
    await joined.connect(small.broker.url, "test", wait_s=10)
    yield joined
    await joined.close()


@pytest.fixture(scope="module")
def mesh(small: SmallStore, directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A tokenizer and a verifier on that broker."""
    made = Stack(directory, tmp_path_factory.mktemp("logs"))
    made.broker = small.broker
    try:
        made.add_model("tokenizer")
        made.add_model("verifier", instance="first")
        yield made
    finally:
        for process in reversed(made.processes):
            process.stop()


async def _ready(gateway: Gateway) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=30) as http:
        answer = await http.get(f"{gateway.url}/readyz")
        assert answer.status_code == 200
        return dict(answer.json())


async def _status(gateway: Gateway, state: str) -> dict[str, Any]:
    """The answer of /readyz once its status is ``state``."""
    async with asyncio.timeout(60):
        while (told := await _ready(gateway))["status"] != state:
            await asyncio.sleep(0.1)
    return told


async def test_streams_end_well_are_missed_and_are_recorded_when_there_is_room(mesh: Stack, small: SmallStore) -> None:
    one, other = (Gateway(mesh, patience_s=1) for _ in range(2))
    for gateway in (one, other):
        await gateway.ready()
    assert await _ready(one) == {"status": "ready", "models": [MODEL]}
    assert "x-outrider-resumable" not in (await RawStream(one.url).begin(max_tokens=1)).headers
    await small.fill()
    ended = await RawStream(one.url).begin(max_tokens=40)
    assert ended.events[-1].data == b"[DONE]"
    told = await _status(one, "degraded")
    assert told["message"].startswith("new streams cannot be resumed for now: ")
    later = await RawStream(one.url).begin(max_tokens=20)
    assert later.headers["x-outrider-resumable"] == "false"
    assert one.count("unwritten_records_total") >= 1
    assert one.count("ledger_failing") == 1
    await _status(other, "degraded")
    async with httpx.AsyncClient(timeout=30) as http:
        unknown = await http.get(f"{other.url}/v1/streams/unheard-of")
    assert unknown.status_code == 503
    assert "may be one that could not be recorded" in unknown.json()["error"]["message"]
    for stream in (ended, later):
        assert (await RawStream(other.url).resume(stream.request)).events == stream.events
    await small.free()
    await _status(one, "ready")
    await eventually(lambda: one.count("waiting_records") == 0)
    await _status(other, "ready")
    verifier = next(each for each in mesh.processes if each.kind == "verifier")
    await asyncio.to_thread(verifier.kill)
    await asyncio.to_thread(verifier.start)
    await other.ready()
    recalls = other.count("recalls_total")
    for stream in (ended, later):
        resumed = await RawStream(other.url).resume(stream.request)
        assert [event.json["choices"] for event in resumed.events[:-1]] == [
            event.json["choices"] for event in stream.events[:-1]
        ]
    assert other.count("recalls_total") == recalls
    async with httpx.AsyncClient(timeout=30) as http:
        assert (await once_certain(http, "GET", f"{other.url}/v1/streams/unheard-of")).status_code == 404


async def test_what_is_cancelled_stays_cancelled_where_its_record_can_no_longer_be_dropped(
    small: SmallStore, bus: Bus
) -> None:
    ledger, key = Ledger(bus, GatewaySettings()), Key("t", "cancelled")
    await ledger.tend()
    sampling = SamplingParams(seed=1, max_tokens=8).to_proto()
    job = Job(key.request, ServedModel("m", "v", 9), [1], sampling, Speculation(), Caller(tenant="t"))
    record = Record.of([job], created=1, seed=1, lingers=False, shape=b"")
    await ledger.enter(key, record)
    await small.fill()
    with suppress(Unavailable):
        while True:
            await ledger.enter(Key("t", "filling"), record)
    await small.free()
    await ledger.tend()
    assert ledger.trouble is None
    await ledger.find(key)
    await ledger.forget(key, [job])
    with pytest.raises(NotFound):
        await ledger.find(key)
