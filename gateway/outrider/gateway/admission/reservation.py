"""One request's use of its caller's limits, and the headers that report the limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from outrider.gateway import metrics
from outrider.gateway.abuse import Sample, Source, Watch
from outrider.gateway.admission.body_turns import Arrival, BodyTurns
from outrider.gateway.admission.caller import REQUESTS, STREAMS, TOKENS, Caller
from outrider.gateway.admission.limit_store import Demand, LimitReached, LimitStatus, LimitStore, Reservation
from outrider.gateway.observer.tenant_labels import TenantLabels
from outrider.mesh.errors import InvalidRequest

_KINDS = {REQUESTS.name: "requests"} | {meter.name: "tokens" for meter in TOKENS}


class Counters(NamedTuple):
    """What all admissions of a gateway count in: its limits, turns of large bodies, its watch, and names of tenants."""

    store: LimitStore
    turns: BodyTurns
    watch: Watch
    labels: TenantLabels


class Admission:
    """The admission of one request of ``caller``; writes OpenAI's rate limit headers into ``headers``.

    ``api`` and ``address`` are where the request came from, as in `Sender`.

    Attributes:
        began: When the request was admitted, in seconds of the monotonic clock.
    """

    def __init__(
        self, caller: Caller, counters: Counters, headers: dict[str, str], address: str = "", api: str = ""
    ) -> None:
        self.caller, self.api, self.address = caller, api, address
        self.began = time.monotonic()
        self._counters, self._headers = counters, headers
        self._demands: list[Demand] = []
        self._reservation: Reservation | None = None

    @property
    def metered(self) -> bool:
        """Whether the caller has limits on tokens."""
        return bool(self.caller.demands(TOKENS, 0))

    def arriving(self) -> AbstractContextManager[Arrival]:
        """The request's body, which arrives inside the block."""
        return self._counters.turns.arriving(self.caller.tenant)

    async def take_turn(self, size: int) -> None:
        """Returns when a body of ``size`` bytes, which has arrived, may be parsed; raises as `Arrival`."""
        with self.arriving() as arrival:
            arrival.grow(size)
            await arrival.turn()

    async def pace(self, samples: Sequence[Sample]) -> None:
        """Tells the watch of a request with these prompts; waits a while if the watch finds the caller suspect."""
        source = Source(self.caller.actor, self.caller.tenant, self.address)
        if delay_s := self._counters.watch.asked(source, samples):
            metrics.abuse_delays.inc()
            await asyncio.sleep(delay_s)

    async def count(self) -> None:
        """Counts the request, whether it succeeds or not; raises as `LimitStore.reserve`."""
        demands = self.caller.demands([REQUESTS], 1)
        if (reservation := await self._reserve(demands)) is not None:
            reservation.settle([1] * len(demands))

    async def reserve(self, prompt: int, answers: Sequence[int]) -> None:
        """Reserves ``prompt`` tokens, the most tokens of each of ``answers``, and a slot for each answer.

        Raises `InvalidRequest` if the request exceeds a whole period's limit, else as `LimitStore.reserve`.
        """
        self._demands = self._all(prompt + sum(answers), len(answers))
        for demand in self._demands:
            _require_possible(demand, max(answers))
        self._reservation = await self._reserve(self._demands)

    async def reserve_prompt(self, prompt: int) -> None:
        """Reserves ``prompt`` tokens that are computed without an answer; raises as `reserve`."""
        self._demands = self.caller.demands(TOKENS, prompt)
        for demand in self._demands:
            _require_possible(demand, 0)
        self._reservation = await self._reserve(self._demands)

    async def reserve_rest(self, tokens: int, streams: int) -> None:
        """Reserves ``tokens`` that are still to come and slots for ``streams``, for a request that began before.

        Raises as `LimitStore.reserve`.
        """
        self._demands = [demand for demand in self._all(tokens, streams) if demand.amount]
        self._reservation = await self._reserve(self._demands)

    def settle(self, tokens: int) -> None:
        """Releases the slots, uses up ``tokens`` tokens of prompts and answers, and releases the rest."""
        if self._reservation is not None:
            self._reservation.settle([tokens if demand.period_s else 0 for demand in self._demands])

    def _all(self, tokens: int, streams: int) -> list[Demand]:
        return self.caller.demands(TOKENS, tokens) + self.caller.demands([STREAMS], streams)

    async def _reserve(self, demands: Sequence[Demand]) -> Reservation | None:
        if not demands:
            return None
        try:
            reservation = await self._counters.store.reserve(demands)
        except LimitReached as refusal:
            metrics.limited.labels(refusal.status.demand.name).inc()
            self._headers.update(_headers([refusal.status]))
            self._show([refusal.status])
            raise
        self._show(reservation.statuses)
        self._headers.update(_headers(reservation.statuses))
        return reservation

    def _show(self, statuses: Iterable[LimitStatus]) -> None:
        """Shows the used share of each limit in the metrics, if they name the tenant."""
        if (tenant := self._counters.labels.own(self.caller.tenant)) is None:
            return
        used: dict[str, float] = {}
        for status in statuses:
            share = 1 - max(0, status.remaining) / max(1, status.demand.limit)
            used[status.demand.name] = max(share, used.get(status.demand.name, 0.0))
        for limit, share in used.items():
            metrics.limit_used.labels(tenant, limit).set(share)


def duration(seconds: float) -> str:
    """``seconds`` in OpenAI's notation: ``20ms``, ``1.5s``, ``6m0s``, ``23h59m59s``."""
    milliseconds = max(0, round(seconds * 1000))
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    shown = f"{rest / 1000:g}s"
    return f"{hours}h{minutes}m{shown}" if hours else f"{minutes}m{shown}" if minutes else shown


def _require_possible(demand: Demand, answer: int) -> None:
    if demand.amount <= demand.limit:
        return
    if demand.period_s and not answer:
        raise InvalidRequest(
            f"the prompt has {demand.amount} tokens, and the limit of {demand.owner} is {demand.limit} {demand.name}",
            param="prompt",
        )
    if demand.period_s:
        raise InvalidRequest(
            f"prompt and answer may have {demand.amount} tokens ({answer} in an answer), and the limit of "
            f"{demand.owner} is {demand.limit} {demand.name}: lower max_tokens",
            param="max_tokens",
        )
    raise InvalidRequest(
        f"n: {demand.amount} answers are more than the {demand.limit} {demand.name} of {demand.owner}", param="n"
    )


def _headers(statuses: Iterable[LimitStatus]) -> dict[str, str]:
    """OpenAI's headers; of several limits of one kind, they report the one with the least remaining."""
    tightest: dict[str, LimitStatus] = {}
    for status in statuses:
        kind = _KINDS.get(status.demand.name)
        if kind is not None and (kind not in tightest or status.remaining < tightest[kind].remaining):
            tightest[kind] = status
    headers = {}
    for kind, status in tightest.items():
        headers[f"x-ratelimit-limit-{kind}"] = str(status.demand.limit)
        headers[f"x-ratelimit-remaining-{kind}"] = str(max(0, status.remaining))
        headers[f"x-ratelimit-reset-{kind}"] = duration(status.reset_s)
    return headers
