"""A request in flight: the streams of all its choices."""

from __future__ import annotations

import asyncio

from outrider.gateway.ledger import Key, Record
from outrider.gateway.stream import TokenStream


class Flight:
    """One request's streams, one for each choice.

    ``record`` is what others have to know to go on with it. Of a ``resumable`` one the ledger is to know; ``entered``
    says that it does, and ``writing`` is the work of telling it. ``owned`` says that no other reader has taken the
    request over; ``lingering`` is what goes on when the reader has left.
    """

    def __init__(self, key: Key, record: Record, *, resumable: bool, entered: bool = False) -> None:
        self.key, self.record = key, record
        self.resumable, self.entered = resumable, entered
        self.streams: list[TokenStream] = []
        self.owned = True
        self.writing: asyncio.Task[None] | None = None
        self.lingering: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether there is more to come."""
        unfinished = any(not stream.finished for stream in self.streams)
        return unfinished and all(stream.failed is None for stream in self.streams)

    @property
    def placed(self) -> bool:
        """Whether a verifier has taken each choice."""
        return all(stream.verifier for stream in self.streams)

    async def close(self, *, cancel: bool) -> None:
        """Closes all streams, cancelled at their verifiers or not."""
        await asyncio.gather(*(stream.close(cancel=cancel) for stream in self.streams))
