"""Bills of requests, in JetStream's key-value store, so that gateways charge each token of a stream once."""

from __future__ import annotations

import msgspec
from outrider.gateway.admission.bill import Bill
from outrider.mesh.bus import Bucket, Bus
from outrider.mesh.errors import AlreadyExists, Unavailable

BUCKET = "outrider-bills"
_ATTEMPTS = 20

_decode = msgspec.msgpack.Decoder(Bill).decode
_encode = msgspec.msgpack.Encoder().encode


class Bills:
    """Bills by tenant and request, written by compare-and-swap; calls raise `Unavailable` as those of `Bucket`."""

    def __init__(self, bus: Bus, keep_s: float) -> None:
        self._bucket, self._keep_s = Bucket(bus, BUCKET), keep_s

    async def open(self) -> None:
        """Makes the bucket."""
        await self._bucket.open(self._keep_s)

    async def take(self, name: str, payer: str, known: list[int]) -> list[int]:
        """As `Bill.take`: from where on ``payer`` is charged."""
        for _ in range(_ATTEMPTS):
            bill, revision = await self._read(name, Bill([0] * len(known)))
            taken = bill.take(payer, known)
            if await self._write(name, taken, revision):
                return taken.paid
        raise _contested()

    async def end(self, name: str, payer: str, start: list[int], heard: list[int]) -> int:
        """As `Bill.end`: how many tokens ``payer`` is charged."""
        for _ in range(_ATTEMPTS):
            bill, revision = await self._read(name, Bill(start, payer))
            ended, charged = bill.end(payer, start, heard)
            if await self._write(name, ended, revision):
                return charged
        raise _contested()

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
