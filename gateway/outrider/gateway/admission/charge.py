"""Charges for requests: one reader's share of the tokens, and the bill that divides them among several readers.

Each token is charged once. `docs/decisions/0011` has the reasons.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import msgspec
from outrider.gateway.admission.reservation import Admission
from outrider.mesh.bus import Bucket, Bus
from outrider.mesh.errors import AlreadyExists, Unavailable
from outrider.mesh.telemetry import get_logger
from outrider.wire.subjects import BILLS_BUCKET

_ATTEMPTS = 20

FIRST = "first"
"""The payer that began the request."""


class Bill(msgspec.Struct, frozen=True):
    """Which reader of a request pays for which tokens.

    All lists have one token index per choice. Tokens before ``paid`` are accounted for. The present ``payer`` pays for
    later tokens; it is empty if there is none. ``ends`` holds the earlier payers that have not settled yet, each with
    the index at which its share ends. A payer that died never settles: its reservation stays counted instead.
    """

    paid: list[int]
    payer: str = FIRST
    ends: dict[str, list[int]] = {}

    def take(self, payer: str, generated: Sequence[int]) -> Bill:
        """The bill after ``payer`` has taken the request over, with ``generated`` tokens of each choice so far."""
        if not self.payer:
            return Bill(self.paid, payer, self.ends)
        paid = furthest(self.paid, generated)
        return Bill(paid, payer, self.ends | {self.payer: paid})

    def end(self, payer: str, start: Sequence[int], received: Sequence[int]) -> tuple[Bill, int]:
        """The bill after ``payer`` has settled, and the number of tokens that ``payer`` pays for.

        The share of ``payer`` begins at ``start``; ``received`` tokens of each choice have reached it. Tokens that
        reached it while there was no payer belong to its share.
        """
        ends = dict(self.ends)
        taken_at = ends.pop(payer, start)
        paid = furthest(self.paid, received) if self.payer in (payer, "") else self.paid
        charged = sum(taken_at) - sum(start) + sum(paid) - sum(self.paid)
        return Bill(paid, "" if self.payer == payer else self.payer, ends), charged


def furthest(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """The larger index of each pair."""
    return [max(pair) for pair in zip(one, other, strict=True)]


_decode = msgspec.msgpack.Decoder(Bill).decode
_encode = msgspec.msgpack.Encoder().encode


class BillStore:
    """Bills in JetStream's key-value store, written by compare-and-swap.

    All calls raise `Unavailable` as those of `Bucket`, or if too many gateways write a bill at once.
    """

    def __init__(self, bus: Bus, keep_s: float) -> None:
        self._bucket, self._keep_s = Bucket(bus, BILLS_BUCKET), keep_s

    async def open(self) -> None:
        """Creates the bucket."""
        await self._bucket.open(self._keep_s)

    async def take(self, name: str, payer: str, generated: list[int]) -> list[int]:
        """As `Bill.take`; returns the index of each choice at which the share of ``payer`` begins."""
        for _ in range(_ATTEMPTS):
            bill, revision = await self._read(name, Bill([0] * len(generated)))
            taken = bill.take(payer, generated)
            if await self._write(name, taken, revision):
                return taken.paid
        raise _contested()

    async def end(self, name: str, payer: str, start: list[int], received: list[int]) -> int:
        """As `Bill.end`; returns the number of tokens that ``payer`` pays for."""
        unwritten = Bill(start, payer)
        # the bill of a request that nobody has taken over is not written yet: one call in place of two
        bill, revision = (unwritten, 0) if payer == FIRST else await self._read(name, unwritten)
        for _ in range(_ATTEMPTS):
            ended, charged = bill.end(payer, start, received)
            if await self._write(name, ended, revision):
                return charged
            bill, revision = await self._read(name, unwritten)
        raise _contested()

    async def erase(self, tenant: str, before: float) -> int:
        """Deletes a tenant's bills that are older than ``before``; returns their number."""
        return await self._bucket.wipe(f"{tenant}.*", before)

    async def _read(self, name: str, unwritten: Bill) -> tuple[Bill, int]:
        entry = await self._bucket.get(name)
        return (_decode(entry.value), entry.revision) if entry else (unwritten, 0)

    async def _write(self, name: str, bill: Bill, revision: int) -> bool:
        try:
            await self._bucket.swap(name, _encode(bill), revision)
        except AlreadyExists:
            return False
        return True


def _contested() -> Unavailable:
    return Unavailable("too many readers take this stream at once", retry_after=1.0)


_log = get_logger("charges")


class Charge:
    """One reader's share of a request's tokens, and a slot for each choice that runs.

    Attributes:
        admission: The admission of the request.
        shared: Whether the bill called ``name`` in ``bills`` divides the tokens between this reader and others: other
            readers may go on with the request, and its caller has limits on tokens.
    """

    def __init__(self, admission: Admission, bills: BillStore, name: str, payer: str, *, shared: bool) -> None:
        self.admission, self._bills, self._name, self._payer = admission, bills, name, payer
        self.shared = shared and admission.metered
        self._prompt = 0
        self._start: list[int] | None = None

    async def begin(self, prompt: int, answers: Sequence[int]) -> None:
        """Reserves ``prompt`` tokens and the most tokens of each of ``answers``; raises as `Admission.reserve`."""
        await self.admission.reserve(prompt, answers)
        self._prompt, self._start = prompt, [0] * len(answers)

    async def take(self, generated: list[int]) -> None:
        """Begins this reader's share of an earlier request, with ``generated`` tokens of each choice so far."""
        self._start = await self._bills.take(self._name, self._payer, generated) if self.shared else generated

    async def reserve(self, most: Sequence[int], running: int) -> None:
        """Reserves what is left of ``most`` tokens of each choice, and ``running`` slots; raises `LimitReached`."""
        await self.admission.reserve_rest(_tokens_beyond(self._start or most, most), running)

    def waive(self) -> None:
        """Charges nothing: no verifier took the request, or none computed anything before its deadline."""
        if self._start is not None:
            self.admission.settle(0)
            self._start = None

    async def settle(self, received: Sequence[int]) -> tuple[int, int]:
        """Charges this reader's share of ``received`` tokens of each choice, and releases the other reserved tokens.

        Returns the tokens of prompts and of answers that are charged; none if they are charged already, or waived.
        """
        start, self._start = self._start, None
        if start is None:
            return 0, 0
        try:
            charged = await self._share(start, list(received))
        except Unavailable as error:
            _log.warning("a bill could not be written", request=self._name, why=error.message)
            charged = _tokens_beyond(start, received)
        self.admission.settle(self._prompt + charged)
        return self._prompt, charged

    async def _share(self, start: list[int], received: list[int]) -> int:
        if not self.shared:
            return _tokens_beyond(start, received)
        return await self._bills.end(self._name, self._payer, start, received)


def new_payer() -> str:
    """A random name for a reader that takes a request over."""
    return secrets.token_hex(6)


def _tokens_beyond(start: Sequence[int], received: Sequence[int]) -> int:
    return sum(furthest(start, received)) - sum(start)
