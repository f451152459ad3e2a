"""Problems are counted, named, and listed with the faults before them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import httpx

from tests.chaos.faults import Fault
from tests.chaos.journeys import Journey, Journeys
from tests.chaos.tally import EXCUSED, REFUSED, UNRECORDED, Tally, tally
from tests.waiting import eventually

HUNG_S = 30.0
FAULTS = [Fault("gateway + verifier", 100.0, 100.0, "gateway-1, verifier-2"), Fault("broker", 200.0, 201.0, "it")]


def ended(journeys: Journeys, outcome: str, progress: float, number: int = 7) -> Journey:
    journey = Journey(number, progress - 5, progress, journeys, progress + 30, "abc", outcome, "said so")
    journeys.all.append(journey)
    return journey


def counted(journeys: Journeys) -> Tally:
    return tally(journeys, FAULTS, 0.0)


def test_an_identical_stream_is_counted_and_no_problem() -> None:
    journeys = Journeys(lambda: True, HUNG_S)
    ended(journeys, "identical", 150.0)
    total = counted(journeys)
    assert (total.streams, total.wrong, total.problems) == (1, {}, [])


def test_a_problem_is_listed_with_its_stream_and_the_faults_before_it() -> None:
    journeys = Journeys(lambda: True, HUNG_S)
    for outcome, progress in (("lost", 99.5), ("hung", 150.0), ("altered", 250.0)):
        ended(journeys, outcome, progress)
    total = counted(journeys)
    assert total.wrong == {"lost": 1, "hung": 1, "altered": 1}
    assert total.by_fault["gateway + verifier"] == {"made": 1, "lost": 1, "hung": 1}
    assert total.by_fault["broker"] == {"made": 1, "altered": 1}
    assert all("stream 7 (abc)" in line and "gateway-1, verifier-2" in line for line in total.problems)


def test_a_stream_that_its_answer_called_not_resumable_is_no_wrong_loss_and_is_listed() -> None:
    journeys = Journeys(lambda: True, HUNG_S)
    ended(journeys, "lost", 150.0).resumable = False
    ended(journeys, "hung", 150.0).resumable = False
    total = counted(journeys)
    assert total.counts[UNRECORDED] == 1
    assert total.wrong == {"hung": 1}
    assert total.by_fault["gateway + verifier"] == {"made": 1, UNRECORDED: 1, "hung": 1}
    assert f"stream 7 (abc) {UNRECORDED}: said so after 5.0 s" in total.problems[0]


async def test_a_post_may_be_refused_only_while_no_verifier_served() -> None:
    serves = True
    journeys = Journeys(lambda: serves, HUNG_S)
    watch = asyncio.create_task(journeys.watch())
    serves = False
    await eventually(lambda: journeys.outages)
    start = journeys.outages[0][0]
    serves = True
    await eventually(lambda: journeys.served(asyncio.get_running_loop().time(), asyncio.get_running_loop().time()))
    watch.cancel()
    journey = ended(journeys, "identical", 150.0)
    journey.refused = [(start - 3.0, start - 2.0, 503), (start - 1.0, start, 503)]
    total = counted(journeys)
    assert (total.counts[REFUSED], total.counts[EXCUSED], total.wrong) == (1, 1, {REFUSED: 1})


async def test_a_second_request_of_a_reader_is_a_return() -> None:
    journeys = Journeys(lambda: True, HUNG_S)
    journey = Journey(7, 0.0, 0.0, journeys)
    await journey.on_request(httpx.Request("POST", "http://127.0.0.1"))
    assert (journey.returns, journeys.submitted.is_set(), journeys.returned.is_set()) == (0, True, False)
    await journey.on_request(httpx.Request("GET", "http://127.0.0.1"))
    assert (journey.returns, journeys.returned.is_set()) == (1, True)


async def test_a_reader_whose_stream_makes_no_progress_is_ended_and_counted_as_hung() -> None:
    journeys = Journeys(lambda: True, hung_s=0.1)

    async def read() -> None:
        journey = journeys.begin(3)
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        journeys.end(journey, "left")

    watch = asyncio.create_task(journeys.watch())
    await read()
    watch.cancel()
    assert [journey.outcome for journey in journeys.all] == ["hung"]
