from __future__ import annotations

import asyncio
import itertools

from outrider.measure.load.arrivals import Closed, Open
from outrider.measure.load.client import Reply, RequestError

REPLY = Reply(
    [1.0],
    prompt_tokens=1,
    cached_tokens=0,
    completion_tokens=1,
    accepted_tokens=0,
    rejected_tokens=0,
    steps=1,
)


class Server:
    """Counts requests: all, those that run, and the most at a time."""

    def __init__(self) -> None:
        self.running = self.most = self.requests = 0

    async def __call__(self) -> Reply:
        self.requests += 1
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.001)
        self.running -= 1
        return REPLY


async def test_a_closed_load_keeps_its_concurrency_and_sends_all_requests():
    server = Server()
    samples = await Closed(3).run(itertools.repeat(server), 10)
    assert (len(samples), server.requests, server.most) == (10, 10, 3)


async def test_an_open_load_does_not_wait_for_answers():
    server, all_asked = Server(), asyncio.Event()

    async def answer() -> Reply:
        if server.requests == 9:
            all_asked.set()
        reply = await server()
        await all_asked.wait()
        return reply

    async with asyncio.timeout(60):
        await Open(rate=1e6).run(itertools.repeat(answer), 10)
    assert server.requests == 10


async def test_an_open_load_arrives_at_the_same_times_for_the_same_seed():
    gaps = []
    for seed in (1, 1, 2):
        samples = await Open(rate=1e4, seed=seed).run(itertools.repeat(Server()), 5)
        gaps.append([round(sample.due - samples[0].due, 9) for sample in samples])
    assert gaps[0] == gaps[1] != gaps[2]


async def test_a_request_that_fails_is_a_sample_and_ends_nothing():
    async def fail() -> Reply:
        raise RequestError("refused")

    samples = await Closed(1).run(iter([fail, Server(), fail]), 3)
    assert [sample.error for sample in samples] == ["refused", "", "refused"]
