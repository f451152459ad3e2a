"""The course of each stream, and the times without a verifier that serves."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

_LOOK_S, _HEADS = 0.02, 4


@dataclass
class Journey:
    """One stream. Times are of `time.monotonic`.

    ``refused`` has times and status of each refused POST; ``heads`` has the last heads of answers. ``resumable`` is
    False where the answer said that its gateway and its verifier alone know the stream.
    """

    number: int
    began: float
    progress: float
    journeys: Journeys
    ended: float = 0.0
    request: str = ""
    outcome: str = ""
    why: str = ""
    has_sent: bool = False
    resumable: bool = True
    returns: int = 0
    refused: list[tuple[float, float, int]] = field(default_factory=list)
    heads: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=_HEADS))

    def on_progress(self, request: str) -> None:
        """Notes that a part of the stream was read."""
        self.progress, self.request = time.monotonic(), request
        self.journeys.progressed.set()

    def heads_before(self, now: float) -> str:
        """The last heads of answers, with the seconds from their arrival to ``now``."""
        return "".join(f", {what} {now - at:.1f} s before" for at, what in self.heads)

    async def on_request(self, request: httpx.Request) -> None:
        """A hook of httpx for a sent request; all but the first are returns after a break or a refusal."""
        request.extensions["sent"] = time.monotonic()
        if self.has_sent:
            self.returns += 1
            self.journeys.returned.set()
        self.has_sent = True
        if request.method == "POST":
            self.journeys.submitted.set()

    async def on_response(self, response: httpx.Response) -> None:
        """A hook of httpx for the head of an answer."""
        request = response.request
        where = f"{request.url.host}:{request.url.port}"
        self.heads.append((time.monotonic(), f"{request.method} {where} {response.status_code}"))
        if request.method == "POST" and response.status_code == 200:
            self.resumable = response.headers.get("x-outrider-resumable") != "false"
        elif request.method == "POST":
            self.refused.append((request.extensions["sent"], time.monotonic(), response.status_code))


class Journeys:
    """All journeys; ``submitted``, ``returned`` and ``progressed`` are set at each such event of any reader.

    A stream hangs if it makes no progress for ``hung_s`` seconds while a verifier serves all the time.
    """

    def __init__(self, serves: Callable[[], bool], hung_s: float) -> None:
        self.all: list[Journey] = []
        self.submitted, self.returned, self.progressed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._serves, self._hung_s = serves, hung_s
        self.outages: list[list[float]] = []
        self._reading: dict[int, tuple[Journey, asyncio.Task[object]]] = {}

    def begin(self, number: int) -> Journey:
        """The journey of question ``number``, which the calling task reads."""
        now, task = time.monotonic(), asyncio.current_task()
        journey = Journey(number, now, now, self)
        assert task
        self.all.append(journey)
        self._reading[id(journey)] = journey, task
        return journey

    def end(self, journey: Journey, outcome: str, why: str = "") -> None:
        """Notes the outcome, unless the stream hung."""
        del self._reading[id(journey)]
        journey.ended = time.monotonic()
        if not journey.outcome:
            journey.outcome, journey.why = outcome, why

    async def watch(self) -> None:
        """Notes times without a verifier that serves, and ends readers of hung streams; runs until cancelled."""
        outage: list[float] | None = None
        while True:
            now = time.monotonic()
            if self._serves():
                outage = None
                self._end_hung(now)
            elif outage is None:
                outage = [now, now]
                self.outages.append(outage)
            else:
                outage[1] = now
            await asyncio.sleep(_LOOK_S)

    def _end_hung(self, now: float) -> None:
        last = self.outages[-1][1] if self.outages else 0.0
        for journey, task in self._reading.values():
            if not journey.outcome and now - max(journey.progress, last) > self._hung_s:
                journey.outcome, journey.why = (
                    "hung",
                    f"nothing for {now - journey.progress:.0f} s{journey.heads_before(now)}",
                )
                task.cancel()

    def served(self, began: float, ended: float) -> bool:
        """Whether a verifier served all the time from ``began`` to ``ended``."""
        return not any(start <= ended and stop >= began for start, stop in self.outages)
