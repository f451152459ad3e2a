"""A drafter of another package that reads the target's states, in a verifier and in proposers that come and go."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import torch
from outrider.engine.decode.outcome import CommittedStates, CommittedTokens, OpenedSequence, Outcome
from outrider.engine.models.llama import LlamaModel
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.engine.speculation import Opening, Traits
from outrider.engine.speculation.drafters.states import States
from outrider.engine.text import Tokenizer
from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Bus
from outrider.mesh.registry import Registry
from outrider.mesh.rpc import channel, close_channels
from outrider.mesh.tasks import Tasks
from outrider.v1 import sampling_pb2, verifier_pb2_grpc
from outrider.v1 import verifier_pb2 as pb
from outrider.verifier.rpc.proposers import RemoteDrafting
from outrider.wire.frames import Frame, decode_frame
from outrider.wire.ids import pack_ids

from tests.engine.drafters import states_of
from tests.latch import Latch
from tests.processes import ALWAYS, ServiceProcess, running
from tests.recipes import install
from tests.toy_model import save_toy
from tests.waiting import eventually

PACKAGE = Path(__file__).parent / "three_layers"
VOCABULARY, PROMPT, ANSWER = 50, [*range(40)], 100
LAYERS = (1, 2, 3)
"""Those of the drafter for a toy of two layers."""
Stub = verifier_pb2_grpc.VerifierStub


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(PACKAGE, folder / "sources")
    install(folder / "sources", folder / "installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder / "installed"), os.environ.get("PYTHONPATH", "")]))
        yield


class Mesh:
    """A verifier with the drafter, and the settings of proposers with it, which record in ``folder``."""

    def __init__(self, nats_url: str, folder: Path, latch: Latch) -> None:
        self.model, self.folder, self.latch = save_toy(folder / "toy", VOCABULARY), folder, latch
        self._metrics = {"seen": hold_port(), "first": hold_port()}
        self._common = {"nats_url": nats_url, "model": self.model}

    def verifier(self) -> ServiceProcess:
        settings = {"page_size": 8, "prefill_rows": 16, "drafters": '["three-layers"]', "instance": "seen"}
        settings |= {"metrics_port": self._metrics["seen"]}
        log, more = self.folder / "verifier.log", {"latch": self.latch, "program": ALWAYS}
        return ServiceProcess("verifier", log, **more, **settings, **self._common)

    def proposer(self, name: str, **options: str) -> ServiceProcess:
        (self.folder / name).mkdir(exist_ok=True)
        options = {"folder": str(self.folder / name)} | options
        ports = {"metrics_port": self._metrics[name]} if name in self._metrics else {}
        flags = ports | {f"options.{key}": value for key, value in options.items()}
        return ServiceProcess(
            "proposer", self.folder / f"{name}.log", instance=name, drafter="recorder", **flags, **self._common
        )

    def guessed(self, instance: str, metric: str, drafter: str) -> bool:
        """Whether a metric of guesses, by drafter, is above 0."""
        text = httpx.get(f"http://127.0.0.1:{self._metrics[instance]}/metrics").text
        lines = [line for line in text.splitlines() if line.startswith(f"outrider_{metric}{{")]
        return any(f'drafter="{drafter}"' in line and not line.endswith(" 0.0") for line in lines)

    def check(self, name: str, count: int) -> list[int]:
        """Compares the states that a proposer got with those of a whole forward pass; the first token of each."""
        model, firsts = LlamaModel.load(self.model, dtype="float32"), []
        files = sorted((self.folder / name).glob("*.pt"))
        assert len(files) == count
        for file in files:
            tokens, seen = torch.load(file)
            places = [place for start, states in seen for place in range(start, start + len(states))]
            assert places == list(range(places[0], places[-1] + 1))
            assert len(tokens) - 12 <= places[-1] + 2 <= len(tokens)
            expected = states_of(model, tokens[: places[-1] + 1], LAYERS)[places[0] :]
            torch.testing.assert_close(torch.cat([states for _, states in seen]), expected, rtol=0.01, atol=0.01)
            firsts.append(places[0])
        return firsts


@pytest.fixture(scope="module")
def mesh(shared_nats: str, installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    folder = tmp_path_factory.mktemp("mesh")
    mesh = Mesh(shared_nats, folder, Latch(folder / "latch"))
    verifier = mesh.verifier()
    verifier.start()
    try:
        verifier.wait_ready()
        yield mesh
    finally:
        verifier.stop()


@pytest.fixture
async def registry(bus: Bus) -> AsyncIterator[Registry]:
    reader = Registry(bus, "test", "reader")
    await reader.start()
    yield reader
    reader.leave()


@pytest.fixture
async def stub(registry: Registry, mesh: Mesh) -> AsyncIterator[Stub]:
    members = await registry.wait_for("verifier", lambda all_: any(m.instance == "seen" for m in all_), 240)
    yield Stub(channel(next(member.address for member in members if member.instance == "seen")))
    await close_channels()


async def answer(stub: Stub, name: str, seed: int, **speculation: object) -> list[Frame]:
    request = pb.SubmitRequest(
        request_id=name,
        tenant="t",
        prompt=pack_ids([*PROMPT, seed]),
        sampling=sampling_pb2.SamplingParams(temperature=seed % 2, seed=seed, max_tokens=ANSWER),
        speculation=sampling_pb2.Speculation(**speculation),
    )
    await stub.Submit(request)
    return [decode_frame(response.frame) async for response in stub.Follow(pb.FollowRequest(request_id=name))]


def said(frames: list[Frame]) -> list[int]:
    return [token for frame in frames for token in frame.tokens]


async def load(registry: Registry, instance: str, count: int) -> None:
    await registry.wait_for(
        "proposer", lambda all_: any(m.instance == instance and m.status["load"] == count for m in all_), 120
    )


async def test_a_drafter_of_another_package_gets_states_in_both_places_and_changes_no_token(
    stub: Stub, mesh: Mesh, registry: Registry
) -> None:
    plain = [said(await answer(stub, f"plain-{seed}", seed, off=True)) for seed in range(4)]
    local = await asyncio.gather(*(answer(stub, f"local-{seed}", seed, drafters=["three-layers"]) for seed in range(4)))
    assert list(map(said, local)) == plain
    await eventually(lambda: mesh.guessed("seen", "spec_bought_tokens_total", "three-layers"))
    proposer = mesh.proposer("first")
    proposer.start()
    try:
        await load(registry, "first", 0)
        await eventually(lambda: b"verifier joined" in proposer.log.read_bytes())
        remote = await asyncio.gather(
            *(answer(stub, f"remote-{seed}", seed, drafters=["recorder"]) for seed in range(4))
        )
        assert list(map(said, remote)) == plain
        await eventually(lambda: mesh.guessed("first", "spec_proposed_tokens_total", "recorder"))
        await eventually(lambda: len(list((mesh.folder / "first").glob("*.pt"))) == 4)
        assert mesh.check("first", 4) == [0] * 4
    finally:
        proposer.stop()


async def test_a_proposer_that_takes_over_gets_states_from_there_on(stub: Stub, mesh: Mesh, registry: Registry) -> None:
    plain = said(await answer(stub, "before", 7, off=True))
    first, second = mesh.proposer("killed"), mesh.proposer("second")
    first.start()
    try:
        await load(registry, "killed", 0)
        await eventually(lambda: b"verifier joined" in first.log.read_bytes())
        with mesh.latch.at(30):
            asked = asyncio.create_task(answer(stub, "asked", 7, drafters=["recorder"]))
            await load(registry, "killed", 1)
            first.kill()
            second.start()
            await load(registry, "second", 1)
        frames = await asked
        assert said(frames) == plain
        await eventually(lambda: bool(list((mesh.folder / "second").glob("*.pt"))))
        [start] = mesh.check("second", 1)
        assert start >= len(PROMPT) + 1
    finally:
        first.stop()
        second.stop()


def states(start: int, count: int) -> CommittedStates:
    rows = torch.arange(start, start + count).view(-1, 1, 1).expand(count, len(LAYERS), 32)
    return CommittedStates(1, start, States(LAYERS, rows.float()))


async def test_a_paused_proposer_misses_no_states_and_one_that_asks_for_other_layers_is_not_used(
    mesh: Mesh, registry: Registry
) -> None:
    vocabulary, proposer, seeing = Tokenizer.load(mesh.model).fingerprint, mesh.proposer("paused"), []
    proposer.start()
    try:
        await load(registry, "paused", 0)
        shallow = RemoteDrafting("shallow", vocabulary, registry, Tasks(), lambda trees, _: None, last_layer=2)
        drafting = RemoteDrafting(
            "tester", vocabulary, registry, Tasks(), lambda trees, _: None, seeing=seeing.append, last_layer=3
        )
        shallow.start()
        drafting.start()
        await eventually(lambda: drafting.drafters == {"recorder"} and proposer.log.read_bytes().count(b"joined") >= 3)
        assert seeing == [{"recorder": Traits(layers=LAYERS, whole=True)}]
        asked = Request("1", "t", [1, 2, 3], Sampling(0.0), 9)
        drafting.send(
            Outcome(opened=[OpenedSequence(1, Opening([1, 2, 3], Sampling(0.0), 31), asked)], states=[states(0, 2)])
        )
        drafting.send(Outcome(committed=[CommittedTokens(1, 3, [4])], states=[states(2, 1)]))
        paused = frozenset({"recorder"})
        drafting.send(Outcome(paused=paused))
        for length in (4, 6):
            tokens, seen = CommittedTokens(1, length, [5, 6]), states(length - 1, 2)
            drafting.send(Outcome(committed=[tokens], states=[seen], paused=paused))
        drafting.send(Outcome())
        drafting.send(Outcome(committed=[CommittedTokens(1, 8, [7])], states=[states(7, 1)]))
        drafting.send(Outcome(closed=[1]))
        await eventually(lambda: bool(list((mesh.folder / "paused").glob("*.pt"))))
        [file] = (mesh.folder / "paused").glob("*.pt")
        tokens, seen = torch.load(file)
        assert tokens == [1, 2, 3, 4, 5, 6, 5, 6, 7]
        assert [start for start, _ in seen] == [0, 2, 3, 5, 7]
        assert torch.equal(torch.cat([rows for _, rows in seen])[:, 0, 0], torch.arange(8.0))
        assert not shallow.drafters
        proposer.kill()
        await eventually(lambda: seeing[1:] == [{}])
    finally:
        await drafting.stop()
        await shallow.stop()
        proposer.stop()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"drafter": "medusa"}, "the medusa drafter needs the target itself: it runs in the verifier only"),
        ({"drafter": "recorder", "options.stays": "true"}, "states may not cross the network"),
    ],
)
def test_a_drafter_that_must_stay_with_the_target_is_refused_in_a_proposer(
    mesh: Mesh, shared_nats: str, tmp_path: Path, settings: dict[str, str], why: str
) -> None:
    folder = {"options.folder": str(tmp_path)} if settings["drafter"] == "recorder" else {}
    with (
        pytest.raises(AssertionError, match=why),
        running(
            "proposer", tmp_path / "p.log", nats_url=shared_nats, model=mesh.model, **settings, **folder
        ) as process,
    ):
        process.wait_ready()
