"""When deaths of verifiers are a request's fault."""

from __future__ import annotations

import asyncio

import pytest
from outrider.gateway.admission.caller import Caller
from outrider.gateway.errors import Fatal
from outrider.gateway.requests.models import Served
from outrider.gateway.routing.condemned import Condemned
from outrider.gateway.routing.verifiers import Job
from outrider.gateway.streams import casualties
from outrider.gateway.streams.casualties import Casualties
from outrider.mesh.bus import Bus
from outrider.mesh.errors import InvalidRequest
from outrider.v1.sampling_pb2 import Grammar, SamplingParams, Speculation
from outrider.wire.sampling import SamplingParameters

MOST = 3


@pytest.fixture
def sampling() -> SamplingParams:
    wanted = SamplingParameters(seed=1, max_tokens=8).to_proto()
    wanted.grammar.CopyFrom(Grammar(regex="[ab]"))
    return wanted


@pytest.fixture
def condemned(bus: Bus) -> Condemned:
    return Condemned(bus)


@pytest.fixture
def suspect(bus: Bus, sampling: SamplingParams, condemned: Condemned) -> Casualties:
    job = Job("request", Served("m", "v", 9), [1], sampling, Speculation(), Caller())
    return Casualties(job, bus, MOST, asyncio.Lock(), condemned)


async def _die(suspect: Casualties, instances: str) -> None:
    for instance in instances:
        await suspect.wait(60)
        suspect.add(instance)


async def test_a_death_of_a_request_on_its_own_ends_it_and_condemns_its_grammar(
    suspect: Casualties, sampling: SamplingParams, condemned: Condemned
) -> None:
    await _die(suspect, "ab")
    with pytest.raises(Fatal, match="3 verifiers in a row"):
        await _die(suspect, "c")
    with pytest.raises(InvalidRequest):
        condemned.check(sampling)


async def test_deaths_of_a_request_among_others_condemn_nothing_and_twice_as_many_end_it(
    suspect: Casualties, sampling: SamplingParams, condemned: Condemned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(casualties, "_ALONE_S", 0)
    for instance in "abcde":
        await suspect.wait(60)
        await asyncio.sleep(0.01)  # its time on its own is over
        suspect.add(instance)
    with pytest.raises(Fatal, match="6 verifiers in a row"):
        suspect.add("f")
    condemned.check(sampling)


async def test_a_token_clears_a_request(suspect: Casualties) -> None:
    await _die(suspect, "ab")
    await suspect.wait(60)
    suspect.clear()
    await _die(suspect, "cd")
