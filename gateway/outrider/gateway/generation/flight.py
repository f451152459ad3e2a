"""A request in flight: the streams of all its choices."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from outrider.gateway.admission.charge import Charge
from outrider.gateway.generation.ledger import Key, Record
from outrider.gateway.sharing import Reader
from outrider.gateway.streams.stream import TokenStream
from outrider.mesh.errors import Cancelled


class Flight:
    """One request's streams, one for each choice.

    ``record`` is what others have to know to go on with it. Of a ``resumable`` one the ledger is to know; ``entered``
    says that it does, ``told`` that it knows the verifiers too, ``missed`` that it did not take what it was to know,
    and ``writing`` is the work of telling it. ``owned``
    says that no other reader has taken the request over; ``lingering`` is what goes on when the reader has left, and
    ``settling`` the end of the ``charge``.
    """

    def __init__(self, key: Key, record: Record, charge: Charge, *, resumable: bool, entered: bool = False) -> None:
        self.key, self.record, self.charge = key, record, charge
        self.resumable, self.entered = resumable, entered
        self.streams: Sequence[TokenStream | Reader] = []
        self.owned, self.told, self.missed = not entered, entered, False
        self.writing: asyncio.Task[None] | None = None
        self.lingering: asyncio.Task[None] | None = None
        self.settling: asyncio.Task[None] | None = None

    @property
    def untold(self) -> bool:
        """Whether the ledger should know more than it does, and is not being told."""
        return self.resumable and self.placed and not self.told and (self.writing is None or self.writing.done())

    @property
    def ended(self) -> bool:
        """Whether somebody has ended it for all its readers."""
        return any(isinstance(stream.failed, Cancelled) for stream in self.streams)

    @property
    def running(self) -> bool:
        """Whether there is more to come."""
        unfinished = any(not stream.finished for stream in self.streams)
        return unfinished and all(stream.failed is None for stream in self.streams)

    @property
    def placed(self) -> bool:
        """Whether a verifier has taken each choice."""
        return all(stream.placed for stream in self.streams)

    async def close(self) -> None:
        """Closes all streams, cancelled at their verifiers where it is ours."""
        for stream in self.streams:
            await stream.close(cancel=self.owned)

    async def take(self) -> None:
        """Is charged from now on, as `Charge.take`, for streams that have read their logs."""
        await self.charge.take([stream.logged for stream in self.streams])

    async def reserve(self) -> None:
        """Reserves what streams that have read their logs can still use, as `Charge.reserve`."""
        most = [stream.job.sampling.max_tokens if stream.open_ended else stream.logged for stream in self.streams]
        await self.charge.reserve(most, sum(stream.open_ended for stream in self.streams))

    async def settle(self) -> None:
        """Charges what was generated; nothing where nothing was computed."""
        if self.streams and all(stream.untouched for stream in self.streams):
            self.charge.waive()
        await self.charge.settle([stream.spent for stream in self.streams])
