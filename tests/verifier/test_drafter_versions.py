"""`outrider drafter use`, `list` and `rollback` change the head of a running verifier, in the middle of its streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import httpx
import msgspec
import pytest
from outrider.engine.decode.engine_thread import EngineThread
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.engine.speculation import Drafter
from outrider.engine.worker import Inbox
from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Bucket, Bus
from outrider.mesh.registry import Registry
from outrider.mesh.rpc import channel, close_channels
from outrider.mesh.tasks import Tasks
from outrider.v1 import sampling_pb2, verifier_pb2_grpc
from outrider.v1 import verifier_pb2 as pb
from outrider.verifier.drafter_versions import DrafterVersions
from outrider.wire.drafters import BUCKET, DrafterRecord, Version, record_entry
from outrider.wire.frames import decode_frame
from outrider.wire.ids import pack_ids

from tests.cli.calls import outrider
from tests.engine.drafters import STEP_S, Clock, Timed
from tests.engine.engines import VOCABULARY, MakeEngine
from tests.engine.speculation.heads.published import Published, eagle3, eagle3_of_speculators
from tests.latch import Latch
from tests.processes import ALWAYS, ServiceProcess
from tests.toy_model import save_toy
from tests.waiting import eventually

PROMPT, ANSWER, HALF = [*range(40)], 100, 40
Stub = verifier_pb2_grpc.VerifierStub


class Mesh:
    """A verifier named ``one`` without a head, and heads for its model."""

    def __init__(self, nats_url: str, folder: Path) -> None:
        self.nats_url, self.folder = nats_url, folder
        self.model, self.latch, self._port = save_toy(folder / "toy", 50), Latch(folder / "latch"), hold_port()

    def verifier(self) -> ServiceProcess:
        more = {"latch": self.latch, "program": ALWAYS, "metrics_port": self._port, "page_size": 8}
        log = self.folder / "verifier.log"
        return ServiceProcess("verifier", log, model=self.model, nats_url=self.nats_url, instance="one", **more)

    def head(self, name: str, published: Published, **changes: object) -> str:
        return str(published.save(self.folder / name, **changes))

    async def drafter(self, *words: str) -> tuple[int, str, str]:
        """Exit code and output of an `outrider drafter` command; runs of spaces count as one."""
        waiting = () if words[0] == "list" else ("--wait", "45")
        done = await asyncio.to_thread(outrider, "drafter", *words, *waiting, "--nats-url", self.nats_url)
        return done.returncode, " ".join(done.stdout.split()), " ".join(done.stderr.split())

    def guessed(self, drafter: str) -> float:
        """Seconds for which steps waited for the guesses of a drafter."""
        return self._sum("outrider_spec_exposed_drafting_seconds_total", f'drafter="{drafter}"')

    def changes(self, kind: str) -> float:
        return self._sum("outrider_spec_drafter_changes_total", f'kind="{kind}"')

    def _sum(self, metric: str, label: str) -> float:
        lines = httpx.get(f"http://127.0.0.1:{self._port}/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(metric) and label in line)


@pytest.fixture(scope="module")
def mesh(jetstream: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    mesh = Mesh(jetstream, tmp_path_factory.mktemp("mesh"))
    verifier = mesh.verifier()
    verifier.start()
    try:
        verifier.wait_ready()
        yield mesh
    finally:
        verifier.stop()


@pytest.fixture
async def stub(jetstream: str, mesh: Mesh) -> AsyncIterator[Stub]:
    bus = Bus()
    await bus.connect(jetstream, "test", 10)
    registry = Registry(bus, "test", "reader")
    await registry.start()
    members = await registry.wait_for("verifier", lambda all_: any(m.instance == "one" for m in all_), 60)
    yield Stub(channel(next(member.address for member in members if member.instance == "one")))
    registry.leave()
    await close_channels()
    await bus.close()


class Streams:
    """Answers under way: two greedy, two sampled."""

    def __init__(self, stub: Stub, name: str, tenant: str = "t", *, off: bool = False) -> None:
        self.tokens: list[list[int]] = [[] for _ in range(4)]
        self._stub, self._name, self._tenant, self._off = stub, name, tenant, off
        self._tasks = [asyncio.create_task(self._read(number)) for number in range(4)]

    async def _read(self, number: int) -> None:
        sampling = sampling_pb2.SamplingParams(temperature=number % 2, seed=number, max_tokens=ANSWER, ignore_eos=True)
        request = pb.SubmitRequest(
            request_id=f"{self._name}-{number}",
            tenant=self._tenant,
            prompt=pack_ids([*PROMPT, number]),
            sampling=sampling,
            speculation=sampling_pb2.Speculation(off=self._off),
        )
        await self._stub.Submit(request)
        async for response in self._stub.Follow(pb.FollowRequest(request_id=request.request_id)):
            self.tokens[number] += decode_frame(response.frame).tokens

    async def all(self) -> list[list[int]]:
        await asyncio.gather(*self._tasks)
        return self.tokens

    async def halfway(self) -> None:
        await eventually(lambda: all(len(each) >= HALF for each in self.tokens))
        assert not any(len(each) == ANSWER for each in self.tokens)


async def test_a_head_comes_changes_is_refused_and_goes_in_mid_stream_and_no_token_changes(
    mesh: Mesh, stub: Stub
) -> None:
    plain = await Streams(stub, "plain", off=True).all()
    first, second = mesh.head("first", eagle3()), mesh.head("second", eagle3_of_speculators())
    wrong = mesh.head("wrong", eagle3(), hidden_size=64)

    with mesh.latch.at(HALF):
        streams = Streams(stub, "first")
        await streams.halfway()
        code, told, _ = await mesh.drafter("use", first)
    assert code == 0, told
    assert f"The drafter head of toy is from now on the version v1 of {first}." in told
    assert told.endswith("one head all head@v1 loaded")
    assert await streams.all() == plain
    await eventually(lambda: mesh.guessed("head@v1") > 0)

    with mesh.latch.at(HALF):
        streams = Streams(stub, "second")
        await streams.halfway()
        assert (await mesh.drafter("use", second, "--version", "block"))[0] == 0
        for bad, why in ((str(mesh.folder / "nowhere"), "there is no model in"), (wrong, "refused:")):
            code, told, _ = await mesh.drafter("use", bad)
            assert code == 1
            assert why in told
            assert "one head all head@block refused: " in told
    assert await streams.all() == plain
    await eventually(lambda: mesh.guessed("head@block") > 0)
    assert (mesh.changes("changed"), mesh.changes("refused")) == (2, 2)

    listed = (await mesh.drafter("list"))[1]
    assert f"toy head all v1 {first} before toy head all block {second} before" in listed
    assert f"toy head all v3 {wrong} in use" in listed

    with mesh.latch.at(HALF):
        streams = Streams(stub, "back")
        await streams.halfway()
        for version in ("v2", "block", "v1"):
            code, told, _ = await mesh.drafter("rollback")
            assert code == (version == "v2")
        assert told.endswith("one head all head@v1 loaded")
        code, told, _ = await mesh.drafter("rollback")
        assert (code, told.endswith("one head all none loaded")) == (0, True)
    assert await streams.all() == plain
    code, _, why = await mesh.drafter("rollback")
    assert (code, why) == (
        2,
        "outrider: The drafter head of toy has no version to roll back: `outrider drafter list` shows all",
    )


async def test_a_tenant_has_its_own_version_until_it_is_erased(mesh: Mesh, stub: Stub) -> None:
    plain = await Streams(stub, "alone", off=True).all()
    own = mesh.head("own", eagle3())
    code, told, _ = await mesh.drafter("use", own, "--tenant", "acme", "--version", "own")
    assert (code, told.endswith("one head acme head@acme/own loaded")) == (0, True)
    assert await Streams(stub, "other", "other").all() == plain
    assert mesh.guessed("head@acme/own") == 0
    assert await Streams(stub, "acme", "acme").all() == plain
    await eventually(lambda: mesh.guessed("head@acme/own") > 0)
    assert "acme own" in (await mesh.drafter("list"))[1]
    done = await asyncio.to_thread(outrider, "tenants", "erase", "acme", "--nats-url", mesh.nats_url, "--wait", "20")
    assert "1 drafters" in " ".join(done.stdout.split())
    before = mesh.guessed("head@acme/own")
    assert await Streams(stub, "gone", "acme").all() == plain
    assert mesh.guessed("head@acme/own") == before
    assert "acme" not in (await mesh.drafter("list"))[1]


class Loader:
    """A target's loader, of drafters that take as many seconds of ``clock`` as their model's name says."""

    name = "timed-toy"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def drafter(self, name: str, model: str | None) -> Drafter | None:
        return None if model is None else Timed(VOCABULARY, self.clock, float(model))


async def test_a_version_that_is_slower_is_announced_as_rolled_back(jetstream: str, make_engine: MakeEngine) -> None:
    clock, inbox, bus, tasks = Clock(), Inbox(), Bus(), Tasks()
    await bus.connect(jetstream, "test", 10)
    bucket, key = Bucket(bus, BUCKET), record_entry(Loader.name, "timed", None)
    await bucket.open()
    await bucket.put(record_entry(Loader.name, "broken", None), b"{}")  # the other records are followed nevertheless
    engine = make_engine(VOCABULARY, judged=True, timer=clock)
    engine.runner.before = lambda: clock.spend(STEP_S)
    thread = EngineThread(engine, inbox, lambda outcome: None, lambda error: None)
    thread.start()
    versions = DrafterVersions(bus, Loader(clock), engine, inbox, lambda name: None)  # type: ignore[arg-type]
    tasks.spawn(versions.follow(), "versions")
    try:
        made = ()
        for name, seconds, state in (("v1", "0.0002", "loaded"), ("v2", "0.0035", "rolled back: tokens a second fell")):
            made = (*made, Version(name, seconds, 0.0))
            record = DrafterRecord(
                model=Loader.name, drafter="timed", versions=made, used=tuple(version.name for version in made)
            )
            revision = await bucket.put(key, msgspec.json.encode(record))
            await eventually(lambda revision=revision: [each.revision for each in versions.status()] == [revision])
            for number in range(11):
                request = Request(f"{name} {number}", "t", [1, 2, 3], Sampling(1.0, seed=number), 80)
                await asyncio.wrap_future(inbox.call(partial(engine.submit, request)))
                await eventually(lambda: not engine.busy)
            [told] = versions.status()
            assert told.state.startswith(state)
            assert told.runs == "timed@v1"
    finally:
        thread.stop()
        await bucket.wipe(key)
        await tasks.cancel()
        await bus.close()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("use", "heads/x", "--version", "a.b", "--model", "m"), "'a.b' is no name for a version"),
        (("use", "heads/x", "--drafter", "a b", "--model", "m"), "'a b' is no name for a drafter"),
        (("use", "heads/x", "--tenant", "a.b", "--model", "m"), "'a.b' is no name for a tenant"),
        (("rollback", "--model", "m"), "The drafter head of m has no version to roll back"),
    ],
)
async def test_bad_words_are_refused_with_what_is_allowed(mesh: Mesh, words: tuple[str, ...], why: str) -> None:
    code, _, told = await mesh.drafter(*words)
    assert code == 2
    assert why in told


async def test_a_version_keeps_its_name_and_waits_for_verifiers_that_start(mesh: Mesh) -> None:
    for _ in range(2):
        code, _, told = await mesh.drafter("use", "heads/x", "--version", "same", "--model", "unserved")
        assert (code, told) == (0, "No verifier of unserved runs: those that start will load it.")
    code, _, told = await mesh.drafter("use", "heads/y", "--version", "same", "--model", "unserved")
    assert (code, told) == (2, "outrider: the version same is heads/x: give heads/y another name")
