"""Limits that any number of gateways enforce together, through JetStream's key-value store."""

from __future__ import annotations

import asyncio
import itertools
import random
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

import msgspec
from outrider.gateway import metrics
from outrider.gateway.admission.account import Account, LimitLedger, Slice
from outrider.gateway.admission.limit_store import Clock, Demand, LimitReached, LimitStatus, Reservation, owner_of
from outrider.mesh.bus import Bucket, Bus
from outrider.mesh.errors import AlreadyExists, Unavailable
from outrider.wire.subjects import LIMITS_BUCKET

_KEEP_S = 2 * 86400
"""Seconds after its last write in which a ledger is deleted; the longest period is a day."""
_ATTEMPTS = 100
_PAUSE_S = 0.002

_decode = msgspec.json.Decoder(LimitLedger).decode


class NatsStore:
    """Holds a slice of each limit that is in use, and refills it from a ledger in JetStream by compare-and-swap."""

    def __init__(self, bus: Bus, clock: Clock = time.time) -> None:
        self._bucket, self._clock = Bucket(bus, LIMITS_BUCKET), clock
        self._holder = secrets.token_hex(6)
        self._serials = itertools.count(1)
        self._accounts: dict[tuple[str, int], Account] = {}

    async def start(self) -> None:
        """Creates the bucket of ledgers."""
        await self._bucket.open(_KEEP_S)

    async def reserve(self, demands: Sequence[Demand]) -> Reservation:
        """As `LimitStore.reserve`; asks the broker only if too little is left in a slice."""
        taken: list[Slice] = []
        statuses: list[LimitStatus] = []
        try:
            for demand in demands:
                taken.append(await self._take(demand))
                statuses.append(self._status(taken[-1].account, demand))
        except BaseException:
            for each in taken:
                each.settle(0)
            raise
        return Reservation(taken, statuses)

    async def upkeep(self) -> None:
        """Gives back units without recent demand, and renews leases, if the broker answers."""
        with suppress(Unavailable):
            for place, account in list(self._accounts.items()):
                await self._tend(place[0], account, 2 * account.recent)
                if account.idle and not account.lock.locked():
                    self._accounts.pop(place, None)  # `forget` may have dropped it meanwhile

    def forget(self, owners: Collection[str]) -> None:
        """As `LimitStore.forget`; a slice that is lost so is not written to its ledger."""
        kept = {place: each for place, each in self._accounts.items() if owner_of(place[0]) not in owners}
        self._accounts = kept

    async def close(self) -> None:
        """Gives back all unused units."""
        with suppress(Unavailable):
            for (bucket, _), account in list(self._accounts.items()):
                await self._tend(bucket, account, 0)

    async def _take(self, demand: Demand) -> Slice:
        while True:
            account = self._account(demand)
            taken = account.take(demand, self._clock())
            if taken is not None:
                return taken
            async with account.lock:
                if self._account(demand) is account:  # `upkeep` may have dropped the account meanwhile
                    taken = account.take(demand, self._clock()) or await self._refill(account, demand)
                    if taken is not None:
                        return taken

    async def _refill(self, account: Account, demand: Demand) -> Slice | None:
        """Refills the slice and takes ``demand``; repeats if another request took the units. None in another period."""
        while not account.recently_refused(demand, self._clock()):
            await self._write(demand.bucket, account, lambda seen: account.propose_refill(seen, demand, self._clock()))
            taken = account.take(demand, self._clock())
            if taken is not None:
                return taken
            if account.over(self._clock()):
                return None
            if account.lacks(demand):
                account.note_refusal(demand, self._clock())
        raise LimitReached(self._status(account, demand))

    async def _tend(self, bucket: str, account: Account, keep: int) -> None:
        """Writes only if it must; of another period than the present one, it keeps nothing."""
        async with account.lock:
            account.recent = 0
            keep = 0 if account.over(self._clock()) else keep
            if account.must_write(keep, self._clock()):
                await self._write(bucket, account, lambda seen: account.propose_return(seen, keep, self._clock()))

    async def _write(
        self, bucket: str, account: Account, propose: Callable[[LimitLedger], tuple[int, LimitLedger]]
    ) -> None:
        """Writes what ``propose`` makes of the ledger, and repeats this if another gateway wrote in between.

        A write that the broker does not answer stays doubtful until the account reads the ledger again.
        """
        for attempt in range(_ATTEMPTS):
            entry = await self._bucket.get(bucket)
            revision = entry.revision if entry else 0
            serial, changed = propose(account.learn(_decode(entry.value) if entry else LimitLedger()))
            try:
                await self._bucket.swap(bucket, msgspec.json.encode(changed), revision)
                metrics.limit_writes.labels("made").inc()
                return account.confirm(serial)
            except AlreadyExists:
                metrics.limit_writes.labels("raced").inc()
                account.refuse(serial)
                await asyncio.sleep(random.random() * _PAUSE_S * (attempt + 1))
        raise Unavailable("the limits are being changed by too many gateways at once", retry_after=1.0)

    def _account(self, demand: Demand) -> Account:
        place = demand.bucket, demand.window(self._clock())
        account = self._accounts.get(place)
        if account is None:
            account = self._accounts[place] = Account(self._holder, demand.period_s, self._serials, place[1])
        return account

    def _status(self, account: Account, demand: Demand) -> LimitStatus:
        now = self._clock()
        reset_s = account.until - now if demand.period_s else demand.reset_s(now)
        return LimitStatus(demand, max(0, account.left + account.free), reset_s)
