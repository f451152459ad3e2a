"""Which answers are under way or kept, and who may read them too."""

from __future__ import annotations

from collections.abc import Callable

from outrider.gateway import metrics
from outrider.gateway.routing.verifiers import Job
from outrider.gateway.settings import GatewaySettings
from outrider.gateway.sharing.cache import Cache, Cached, repeatable
from outrider.gateway.sharing.reader import Reader
from outrider.gateway.sharing.sameness import sameness
from outrider.gateway.sharing.shared import Shared
from outrider.gateway.streams.stream import TokenStream
from outrider.mesh.bus import Bus

Settled = Callable[[], None]
Make = Callable[[Job, Settled], TokenStream]


class Pool:
    """Gives a request the answer of another that asks for the very same, where both let it; else one of its own.

    ``make`` makes the stream of a job that nobody shares, with what is to be called when a verifier has taken it.
    """

    def __init__(self, settings: GatewaySettings, bus: Bus, make: Make) -> None:
        self._settings, self._bus, self._make = settings, bus, make
        self._shared: dict[tuple[object, ...], Shared] = {}
        self._cache = Cache(settings.cache_bytes, settings.cache_s)

    def stream(self, job: Job, settled: Settled) -> TokenStream | Reader:
        """What to read ``job``'s answer from."""
        if not job.shareable or not (self._settings.coalesce or self._settings.cache_bytes):
            return self._make(job, settled)
        name = sameness(job)
        found = self._find(name, job)
        if found is not None:
            metrics.shared.labels("cache" if isinstance(found, Cached) else "flight").inc()
            return Reader(job, found, lambda: self._make(job, settled), settled, self._bus, leads=False)
        begun = self._begin(name, job, settled)
        return Reader(job, begun, lambda: self._make(job, settled), lambda: None, self._bus, leads=True)

    def _find(self, name: bytes, job: Job) -> Shared | Cached | None:
        if (kept := self._cache.get(name)) is not None:
            return kept
        return self._shared.get(_lane(name, job)) if self._settings.coalesce else None

    def _begin(self, name: bytes, job: Job, settled: Settled) -> Shared:
        lane = _lane(name, job)

        def ended(shared: Shared) -> None:
            if self._shared.get(lane) is shared:
                del self._shared[lane]
            if self._settings.cache_fast or repeatable(shared.stream.at):
                self._cache.put(name, shared.frames)

        self._shared[lane] = made = Shared(self._make(job, settled), ended)
        return made


def _lane(name: bytes, job: Job) -> tuple[object, ...]:
    """Nobody rides with one that may have to wait longer."""
    return name, job.priority, job.caller.weight
