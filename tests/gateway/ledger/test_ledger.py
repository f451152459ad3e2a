"""The ledger of requests and frames, on a real broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from outrider.gateway.admission.caller import Caller
from outrider.gateway.ledger.ledger import Ledger
from outrider.gateway.ledger.record import Key, Record, choice_id
from outrider.gateway.request.generation import choice_seed
from outrider.gateway.request.models import ServedModel
from outrider.gateway.routing.job import Job
from outrider.gateway.settings import GatewaySettings
from outrider.mesh.bus import Bus
from outrider.mesh.errors import NotFound, Unavailable
from outrider.v1 import sampling_pb2 as pb
from outrider.wire.frames import Frame, encode_frame
from outrider.wire.sampling import SamplingParams

from tests.broker import Broker

LONG = 1 << 19
"""Tokens of a prompt of two MiB, twice the largest message of the broker."""


@pytest.fixture
async def storing(tmp_path: Path) -> AsyncIterator[Bus]:
    broker, made = Broker("--jetstream", "--store_dir", str(tmp_path)), Bus()
    broker.start()
    await made.connect(broker.url, "test", wait_s=10)
    yield made
    await made.close()
    broker.kill()


def _sampling(seed: int, choice: int, most: int, top_k: int = 0) -> pb.SamplingParams:
    seed = choice_seed(seed, choice)
    return SamplingParams(seed=seed, max_tokens=most, echo=True, top_k=top_k).to_proto()


def _jobs(key: Key, prompt: list[int], choices: int = 1) -> list[Job]:
    return [
        Job(
            request_id=key.request if choice == 0 else f"{key.request}-{choice}",
            served=ServedModel("m", "v", 9),
            prompt=prompt,
            sampling=_sampling(-5, choice, 7, top_k=3),
            speculation=pb.Speculation(max_nodes=3),
            caller=Caller(tenant=key.tenant),
            priority=-4,
        )
        for choice in range(choices)
    ]


async def _entered(ledger: Ledger, key: Key, prompt: list[int], choices: int = 1) -> list[Job]:
    jobs = _jobs(key, prompt, choices)
    await ledger.place(key, ["left"] * choices)
    await ledger.enter(key, Record.of(jobs, created=1, seed=-5, lingers=True, shape=b"s"))
    return jobs


async def test_a_request_with_several_prompts_is_found_as_it_was(storing: Bus) -> None:
    ledger, key = Ledger(storing, GatewaySettings()), Key("t", "several")
    await ledger.open()
    prompts = {0: ([1, 2, 3], 7, -5), 2: ([4], 9, -(2**63)), 4: ([5, 6], 8, 2**63 - 1)}
    jobs = []
    for first, (prompt, most, seed) in prompts.items():
        for choice in range(2):
            sampling = _sampling(seed, choice, most)
            job = msgspec.structs.replace(_jobs(key, prompt)[0], request_id=choice_id(key.request, first + choice))
            jobs.append(msgspec.structs.replace(job, sampling=sampling))
    await ledger.enter(key, Record.of(jobs, created=1, seed=-5, lingers=True, shape=b"s", prompts=3))
    record, verifiers = await Ledger(storing, GatewaySettings()).find(key)
    assert record.jobs(key.request, Caller(tenant=key.tenant)) == jobs
    assert (record.answers, record.first_indices, verifiers) == (2, [-3, -3, -1, -1, -2, -2], [""] * 6)
    assert record.seeds[::2] == [-5, -(2**63), 2**63 - 1]


async def test_a_request_is_found_as_it_was_by_its_tenant_alone(storing: Bus) -> None:
    ledger, key = Ledger(storing, GatewaySettings()), Key("t", "r")
    await ledger.open()
    jobs = await _entered(ledger, key, [1, 2, 3], choices=3)
    record, verifiers = await Ledger(storing, GatewaySettings()).find(key)
    assert record.jobs(key.request, Caller(tenant=key.tenant)) == jobs
    assert [job.sampling.seed for job in jobs][1:] == [choice_seed(-5, 1), choice_seed(-5, 2)]
    assert (record.first_indices, verifiers) == ([-3] * 3, ["left"] * 3)
    for stranger in (Key("u", "r"), Key("t", "r-1"), Key("t", "q")):
        with pytest.raises(NotFound):
            await ledger.find(stranger)
    await ledger.place(key, ["right"] * 3)
    assert (await ledger.find(key))[1] == ["right"] * 3


async def test_a_prompt_may_be_longer_than_a_message(storing: Bus) -> None:
    ledger, key = Ledger(storing, GatewaySettings()), Key("t", "long")
    await ledger.open()
    jobs = await _entered(ledger, key, list(range(LONG)))
    assert (await ledger.find(key))[0].jobs(key.request, jobs[0].caller) == jobs


async def test_what_is_forgotten_is_gone_and_nothing_else_is(storing: Bus) -> None:
    ledger = Ledger(storing, GatewaySettings())
    await ledger.open()
    kept, gone = await _entered(ledger, Key("t", "a"), [1]), await _entered(ledger, Key("t", "b"), [1])
    for place in range(600):
        for (job,) in (kept, gone):
            storing.publish(job.subject, encode_frame(Frame(job.request_id, place, [place], [""], [""])))
    while len(await ledger.frames(gone[0])) < 600:
        pass
    await ledger.forget(Key("t", "b"), gone)
    with pytest.raises(NotFound):
        await ledger.find(Key("t", "b"))
    assert await ledger.frames(gone[0]) == []
    assert [frame.first_index for frame in await ledger.frames(kept[0])] == list(range(600))
    await ledger.find(Key("t", "a"))


async def test_a_broker_that_stores_nothing_is_told_so(bus: Bus) -> None:
    ledger = Ledger(bus, GatewaySettings())
    await ledger.open()
    with pytest.raises(Unavailable, match="NATS has no JetStream"):
        await ledger.find(Key("t", "r"))


async def test_the_gateway_that_makes_the_ledger_lacks_no_record(storing: Bus) -> None:
    ledger = Ledger(storing, GatewaySettings())
    assert ledger.why_lacking == ledger.trouble is not None
    await ledger.open()
    assert ledger.why_lacking is None


async def test_a_gateway_that_joins_may_lack_records_that_others_have_yet_to_write(storing: Bus) -> None:
    await Ledger(storing, GatewaySettings()).open()
    joined = Ledger(storing, GatewaySettings())
    await joined.open()
    assert joined.trouble is None
    assert joined.why_lacking is not None


async def test_records_may_be_missing_while_the_broker_takes_none_and_for_a_while_after(storing: Bus) -> None:
    ledger = Ledger(storing, GatewaySettings())
    await ledger.open()
    ledger.fail(Unavailable("the disk is full"))
    assert ledger.why_lacking == "the disk is full"
    await ledger.tend()
    assert ledger.trouble is None
    assert ledger.why_lacking is not None
