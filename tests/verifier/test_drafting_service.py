"""Drafters and rules over real processes: several proposers, rejection over the wire, plug-ins of other packages."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from outrider.engine.decode.outcome import CommittedTokens, OpenedSequence, Outcome
from outrider.engine.requests.parameters import Speculation
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.engine.speculation import DraftTree, Opening
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

from tests.processes import ALWAYS, ServiceProcess, running
from tests.recipes import install_recipe
from tests.toy_model import save_toy
from tests.waiting import eventually

VOCABULARY = 50
Stub = verifier_pb2_grpc.VerifierStub


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_toy(tmp_path_factory.mktemp("models") / "toy", VOCABULARY)


class Mesh:
    """A verifier that weighs guesses by rejection, a proposer with a model and one without."""

    def __init__(self, nats_url: str, directory: Path, logs: Path) -> None:
        self.log, self.ports = logs / "verifier.log", {"judge": hold_port(), "p-model": hold_port()}
        common = {"nats_url": nats_url, "model": directory}
        self._services = [
            ServiceProcess(
                "verifier",
                self.log,
                instance="judge",
                acceptance="rejection",
                acceptance_options='{"replacement": true}',
                page_size=8,
                metrics_port=self.ports["judge"],
                drafters='["ngram"]',
                program=ALWAYS,
                **common,
            ),
            ServiceProcess(
                "proposer", logs / "model.log", instance="p-model", metrics_port=self.ports["p-model"], **common
            ),
            ServiceProcess("proposer", logs / "suffix.log", instance="p-suffix", drafter="suffix", **common),
        ]

    def __enter__(self) -> Mesh:
        for service in self._services:
            service.start()
        return self

    def __exit__(self, *failure: object) -> None:
        for service in self._services:
            service.stop()

    def metric(self, name: str, instance: str = "judge", **labels: str) -> float:
        """Sum over all label values that are not given."""
        text = httpx.get(f"http://127.0.0.1:{self.ports[instance]}/metrics").text
        lines = [line for line in text.splitlines() if line.startswith((f"outrider_{name}{{", f"outrider_{name} "))]
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if all(part in line for part in wanted))


@pytest.fixture(scope="module")
def mesh(shared_nats: str, directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with Mesh(shared_nats, directory, tmp_path_factory.mktemp("logs")) as started:
        yield started


@pytest.fixture
async def registry(bus: Bus) -> AsyncIterator[Registry]:
    reader = Registry(bus, "test", "reader")
    await reader.start()
    yield reader
    reader.leave()


async def stub_of(registry: Registry, instance: str) -> Stub:
    members = await registry.wait_for("verifier", lambda all_: any(m.instance == instance for m in all_), 240)
    return Stub(channel(next(member.address for member in members if member.instance == instance)))


@pytest.fixture
async def stub(registry: Registry, mesh: Mesh) -> AsyncIterator[Stub]:
    await registry.wait_for("proposer", lambda all_: {"p-model", "p-suffix"} <= {m.instance for m in all_}, 240)
    yield await stub_of(registry, "judge")
    await close_channels()


async def answer(stub: Stub, name: str, temperature: float, **speculation: object) -> list[Frame]:
    request = pb.SubmitRequest(
        request_id=name,
        tenant="t",
        prompt=pack_ids([1, 2, 3]),
        sampling=sampling_pb2.SamplingParams(temperature=temperature, seed=17, max_tokens=200),
        speculation=sampling_pb2.Speculation(**speculation),
    )
    await stub.Submit(request)
    call = stub.Follow(pb.FollowRequest(request_id=name))
    return [decode_frame(response.frame) async for response in call]


def guessers(frames: list[Frame]) -> set[str]:
    return {name for frame in frames for name in frame.guessed_by if name}


async def test_only_guesses_that_were_drawn_are_used_where_a_sampled_request_is_judged_by_rejection(
    stub: Stub, mesh: Mesh
) -> None:
    drafters: set[str] = set()
    for attempt in range(60):
        drafters |= guessers(await answer(stub, f"warm{attempt}", 1.0))
        if drafters and mesh.metric("spec_unusable_trees_total", drafter="ngram"):
            break
    assert drafters == {"model"}
    assert mesh.metric("spec_accepted_tokens_total", drafter="model") > 0
    assert mesh.metric("spec_unusable_trees_total", drafter="ngram") > 0
    assert "guesses are not used" in mesh.log.read_text()


async def test_greedy_requests_take_guesses_of_every_drafter_and_say_the_same(stub: Stub, mesh: Mesh) -> None:
    plain = [token for frame in await answer(stub, "plain", 0.0, off=True) for token in frame.tokens]
    for names in (["suffix"], ["model"], []):
        for attempt in range(60):
            frames = await answer(stub, f"cold-{'-'.join(names)}-{attempt}", 0.0, drafters=names)
            assert [token for frame in frames for token in frame.tokens] == plain
            if guessers(frames) >= set(names):
                break
        else:
            pytest.fail(f"{names} never guessed right")


async def test_guesses_are_counted_by_drafter_and_depth(stub: Stub, mesh: Mesh) -> None:
    await answer(stub, "counted", 0.0)
    kinds = ("drafted", "bought", "accepted")
    drafted, bought, accepted = (mesh.metric(f"spec_{kind}_tokens_total", drafter="model") for kind in kinds)
    assert drafted >= bought >= accepted > 0
    assert mesh.metric("spec_bought_tokens_total", drafter="model", depth="1") > 0
    assert mesh.metric("spec_hidden_drafting_seconds_total", "p-model", drafter="model") > 0
    assert mesh.metric("spec_proposed_tokens_total", "p-model", drafter="model") >= accepted
    assert mesh.metric("spec_step_seconds_total", kind="predicted") > 0
    assert mesh.metric("spec_step_seconds_total", kind="real") > 0
    assert mesh.metric("spec_exposed_drafting_seconds_total", drafter="ngram") > 0
    assert mesh.metric("spec_lossy") == 0


def opened(number: int, opening: Opening, *drafters: str, residency: frozenset[str] | None = None) -> OpenedSequence:
    request = Request(
        str(number),
        "t",
        list(opening.tokens),
        opening.sampling,
        9,
        speculation=Speculation(drafters=drafters),
        residency=residency,
    )
    return OpenedSequence(number, opening, request)


async def sessions(registry: Registry, instance: str, count: int) -> None:
    """Returns when a proposer announces ``count`` sessions."""
    await registry.wait_for(
        "proposer", lambda all_: any(m.instance == instance and m.status["load"] == count for m in all_), 60
    )


async def test_sessions_of_a_drafter_that_is_left_alone_rest_and_go_on_from_what_it_knows(
    registry: Registry, mesh: Mesh, directory: Path
) -> None:
    await registry.wait_for("proposer", lambda all_: {"p-model", "p-suffix"} <= {m.instance for m in all_}, 240)
    vocabulary = Tokenizer.load(directory).fingerprint
    offered: list[tuple[int, DraftTree]] = []
    works: list[bool] = []
    drafting = RemoteDrafting(
        "tester", vocabulary, registry, Tasks(), lambda trees, _: offered.extend(trees), working=works.append
    )
    drafting.start()
    async with asyncio.timeout(60):
        while drafting.drafters != {"model", "suffix"}:
            await asyncio.sleep(0.02)
    opening = Opening([1, 2, 3], Sampling(0.0), 31)
    elsewhere = opened(4, opening, residency=frozenset({"eu"}))
    suffix_only = opened(2, opening, "suffix")
    drafting.send(Outcome(opened=[elsewhere, opened(1, opening), suffix_only]))
    await sessions(registry, "p-model", 1)
    await sessions(registry, "p-suffix", 2)
    await eventually(lambda: any(tree.drafter == "model" for _, tree in offered))
    paused = frozenset({"model", "suffix"})
    drafting.send(Outcome(paused=paused))
    assert works == [True, False]
    length = 3
    for _ in range(20):
        drafting.send(Outcome(committed=[CommittedTokens(1, length, [5])], paused=paused))
        length += 1
    drafting.send(Outcome(opened=[opened(3, opening)], paused=paused))
    drafting.send(Outcome())
    assert works == [True, False, True]
    await eventually(lambda: any((number, tree.length) == (1, length) for number, tree in offered))
    await sessions(registry, "p-model", 2)
    await sessions(registry, "p-suffix", 3)
    drafting.send(Outcome(paused=paused))
    drafting.send(Outcome(closed=[1, 2, 3], paused=paused))
    await sessions(registry, "p-model", 0)
    await sessions(registry, "p-suffix", 0)
    await drafting.stop()


async def test_a_link_with_too_many_unsent_commits_is_replaced(
    registry: Registry, shared_nats: str, directory: Path, tmp_path: Path
) -> None:
    settings = {"nats_url": shared_nats, "model": directory, "instance": "p-random", "drafter": "random"}
    with running("proposer", tmp_path / "random.log", **settings):
        joined: list[str] = []
        vocabulary = Tokenizer.load(directory).fingerprint
        drafting = RemoteDrafting("tester", vocabulary, registry, Tasks(), lambda trees, _: None, joined=joined.append)
        drafting.start()
        await eventually(lambda: joined.count("random") == 1)
        opening = Opening([1, 2, 3], Sampling(0.0), 31)
        drafting.send(Outcome(opened=[opened(1, opening, "random")]))
        drafting.send(Outcome(committed=[CommittedTokens(1, 3 + place, [5]) for place in range(4001)]))
        await eventually(lambda: joined.count("random") == 2)
        await drafting.stop()


async def test_a_drafter_from_another_package_is_used(
    registry: Registry, shared_nats: str, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_recipe("drafters.md", "outrider_again", tmp_path / "sources", tmp_path / "installed")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "installed"), os.environ.get("PYTHONPATH", "")]))
    settings = {"nats_url": shared_nats, "model": directory, "page_size": 8, "drafters": '["again"]'}
    with ExitStack() as stack:
        log = tmp_path / "verifier.log"
        stack.enter_context(running("verifier", log, instance="third", acceptance="typical", **settings))
        stub = await stub_of(registry, "third")
        frames = await answer(stub, "again", 20.0, drafters=["again"])
    await close_channels()
    usage = frames[-1].usage
    assert usage is not None
    assert guessers(frames) == {"again"}
    assert usage.lossy
