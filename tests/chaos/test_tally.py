"""What goes wrong in chaos is counted, named, and told with the fault that came before."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import httpx

from tests.chaos.faults import Fault
from tests.chaos.journeys import Journey, Journeys
from tests.chaos.tally import EXCUSED, REFUSED, Tally, tally
from tests.waiting import eventually

HUNG_S = 30.0
FAULTS = [Fault("gateway + verifier", 100.0, 100.0, "gateway-1, verifier-2"), Fault("broker", 200.0, 201.0, "it")]


def ended(kept: Journeys, outcome: str, progress: float, number: int = 7) -> Journey:
    journey = Journey(number, progress - 5, progress, kept, progress + 30, "abc", outcome, "said so")
    kept.all.append(journey)
    return journey


def counted(kept: Journeys) -> Tally:
    return tally(kept, FAULTS, 0.0)


def test_a_stream_that_is_as_it_should_be_is_no_more_than_counted() -> None:
    kept = Journeys(lambda: True, HUNG_S)
    ended(kept, "identical", 150.0)
    total = counted(kept)
    assert (total.streams, total.wrong, total.told) == (1, {}, [])


def test_what_went_wrong_is_told_with_its_id_and_the_faults_before_it() -> None:
    kept = Journeys(lambda: True, HUNG_S)
    for outcome, progress in (("lost", 99.5), ("hung", 150.0), ("altered", 250.0)):
        ended(kept, outcome, progress)
    total = counted(kept)
    assert total.wrong == {"lost": 1, "hung": 1, "altered": 1}
    assert total.by_fault["gateway + verifier"] == {"made": 1, "lost": 1, "hung": 1}
    assert total.by_fault["broker"] == {"made": 1, "altered": 1}
    assert all("stream 7 (abc)" in line and "gateway-1, verifier-2" in line for line in total.told)


async def test_a_post_may_be_refused_only_while_no_verifier_served() -> None:
    serves = True
    kept = Journeys(lambda: serves, HUNG_S)
    watch = asyncio.create_task(kept.watch())
    serves = False
    await eventually(lambda: kept.outages)
    start = kept.outages[0][0]
    serves = True
    await eventually(lambda: kept.served(asyncio.get_running_loop().time(), asyncio.get_running_loop().time()))
    watch.cancel()
    journey = ended(kept, "identical", 150.0)
    journey.refused = [(start - 3.0, start - 2.0, 503), (start - 1.0, start, 503)]
    total = counted(kept)
    assert (total.counts[REFUSED], total.counts[EXCUSED], total.wrong) == (1, 1, {REFUSED: 1})


async def test_a_reader_that_asks_again_has_come_back() -> None:
    kept = Journeys(lambda: True, HUNG_S)
    journey = Journey(7, 0.0, 0.0, kept)
    await journey.asks(httpx.Request("POST", "http://127.0.0.1"))
    assert (journey.returns, kept.asked.is_set(), kept.returned.is_set()) == (0, True, False)
    await journey.asks(httpx.Request("GET", "http://127.0.0.1"))
    assert (journey.returns, kept.returned.is_set()) == (1, True)


async def test_a_reader_whose_stream_makes_no_progress_is_ended_and_counted_as_hung() -> None:
    kept = Journeys(lambda: True, hung_s=0.1)

    async def read() -> None:
        journey = kept.begin(3)
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        kept.end(journey, "left")

    watch = asyncio.create_task(kept.watch())
    await read()
    watch.cancel()
    assert [journey.outcome for journey in kept.all] == ["hung"]
