"""Deaths of verifiers that end a request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from outrider.gateway.admission.caller import Caller
from outrider.gateway.errors import FatalRequest
from outrider.gateway.request.models import ServedModel
from outrider.gateway.routing.job import Job
from outrider.gateway.routing.refused_jobs import RefusedJobs
from outrider.gateway.stream.verifier_deaths import VerifierDeaths
from outrider.mesh.bus import Bus
from outrider.mesh.errors import InvalidRequest
from outrider.v1 import sampling_pb2 as pb
from outrider.wire.frames import Finish, Frame
from outrider.wire.sampling import SamplingParams

LIMIT = 3


class Verifiers:
    """The verifiers of a gateway, of which those with lower-case names are gone."""

    def __init__(self, refused: RefusedJobs) -> None:
        self.refused, self.isolation = refused, asyncio.Lock()

    def find(self, instance: str) -> object:
        return None if instance.islower() else self


@pytest.fixture
def sampling() -> pb.SamplingParams:
    wanted = SamplingParams(seed=1, max_tokens=8).to_proto()
    wanted.grammar.CopyFrom(pb.Grammar(regex="[ab]"))
    return wanted


@pytest.fixture
def refused(bus: Bus) -> RefusedJobs:
    return RefusedJobs(bus)


@pytest.fixture
def ended() -> list[Frame]:
    """The frames by which the request has ended for all its readers."""
    return []


@pytest.fixture
def deaths(ended: list[Frame], sampling: pb.SamplingParams, refused: RefusedJobs) -> VerifierDeaths:
    return _deaths(ended, sampling, refused)


def _deaths(ended: list[Frame], sampling: pb.SamplingParams, refused: RefusedJobs, **more: float) -> VerifierDeaths:
    verifiers: Any = Verifiers(refused)
    return VerifierDeaths(_job(sampling), verifiers, ended.append, LIMIT, **more)


def _job(sampling: pb.SamplingParams) -> Job:
    return Job("request", ServedModel("m", "v", 9), [1], sampling, pb.Speculation(), Caller())


async def _die(deaths: VerifierDeaths, instances: str) -> None:
    for instance in instances:
        deaths.add(instance)
        await deaths.judge(0)


async def test_a_death_in_isolation_ends_the_request_and_bans_its_grammar(
    deaths: VerifierDeaths, ended: list[Frame], sampling: pb.SamplingParams, refused: RefusedJobs
) -> None:
    await _die(deaths, "ab")
    assert not ended
    with pytest.raises(FatalRequest, match="3 verifiers"):
        await _die(deaths, "c")
    assert [frame.finish for frame in ended] == [Finish.ERROR]
    with pytest.raises(InvalidRequest):
        refused.check(_job(sampling), begun=False)


async def test_deaths_outside_isolation_ban_nothing_and_twice_as_many_end_the_request(
    ended: list[Frame], sampling: pb.SamplingParams, refused: RefusedJobs
) -> None:
    deaths = _deaths(ended, sampling, refused, isolated_s=0)
    for instance in "abcde":
        deaths.add(instance)
        await deaths.judge(0)
        await asyncio.sleep(0.01)  # isolation is over
    with pytest.raises(FatalRequest, match="6 verifiers"):
        await _die(deaths, "f")
    refused.check(_job(sampling), begun=False)


async def test_a_token_clears_a_request(deaths: VerifierDeaths) -> None:
    await _die(deaths, "ab")
    deaths.clear()
    await _die(deaths, "cd")


async def test_verifiers_that_the_registry_still_knows_are_not_dead(
    deaths: VerifierDeaths, sampling: pb.SamplingParams, refused: RefusedJobs
) -> None:
    await _die(deaths, "ABCDEFab")
    refused.check(_job(sampling), begun=False)
    with pytest.raises(FatalRequest, match="3 verifiers"):
        await _die(deaths, "c")
