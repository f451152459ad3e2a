"""The router that sends a prompt to the verifier with its prefix, unless another computes the prefix sooner."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from outrider.engine.pages.page_names import chain_hashes
from outrider.gateway import metrics
from outrider.gateway.routing.page_map import PageMap
from outrider.gateway.routing.router import Ask, Replica, read_options
from outrider.wire.page_news import NAME_BYTES

_MOST_ASKED = 256
_MOST_VERIFIERS = 4096


class _Options(msgspec.Struct, forbid_unknown_fields=True):
    page_tokens: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 16
    most_pages: Annotated[int, msgspec.Meta(ge=1)] = 1 << 18
    imbalance: Annotated[int, msgspec.Meta(ge=0)] = 8


class _Rates(msgspec.Struct, frozen=True):
    """The speed and the queue that a verifier reports."""

    prefill_tokens_per_s: Annotated[float, msgspec.Meta(gt=0)]
    tokens_per_s: Annotated[float, msgspec.Meta(gt=0)]
    queue_ms: Annotated[float, msgspec.Meta(ge=0)]


class _PageNames:
    """The page names of a prompt, for each vocabulary and page size."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self._names: dict[tuple[str, int], list[bytes]] = {}

    def of(self, vocabulary: str, size: int) -> list[bytes]:
        if (vocabulary, size) not in self._names:
            chain = chain_hashes(vocabulary.encode(), self.ask.tenant, self.ask.prompt, size, self.ask.cache_salt)
            self._names[vocabulary, size] = [name[:NAME_BYTES] for name in chain]
        return self._names[vocabulary, size]


class Backlog:
    """The time until each verifier is idle: the larger of what it reported last and what this gateway sent it.

    Verifiers report their queues about once a second. Requests that this gateway sends count at once, and the estimates
    shrink as time passes.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._reported: dict[str, tuple[Mapping[str, Any], float]] = {}

    def report(self, instance: str, status: Mapping[str, Any], seconds: float) -> None:
        """Notes a queue of ``seconds`` that ``instance`` reported in ``status``; the same object counts once."""
        if len(self._reported) >= _MOST_VERIFIERS:
            self._reported.clear()
        last = self._reported.get(instance)
        if last is None or last[0] is not status:
            self._reported[instance] = status, self._clock() + seconds

    def add(self, instance: str, seconds: float) -> None:
        """Notes that this gateway sent ``instance`` work of ``seconds``."""
        if len(self._until) >= _MOST_VERIFIERS:
            self._until.clear()
        self._until[instance] = max(self._until.get(instance, 0.0), self._clock()) + seconds

    def seconds(self, instance: str) -> float:
        """Seconds until ``instance`` is idle."""
        reported = self._reported[instance][1] if instance in self._reported else 0.0
        return max(reported, self._until.get(instance, 0.0), self._clock()) - self._clock()


class Prefix:
    """Ranks verifiers by the time until they have computed the prompt, from their pages, queue and speed.

    The time is the verifier's backlog, plus the prefill of the tokens that are not in its pages. The prefill counts
    once for the request, once for the next one and once for each request that is there, since all of them wait for it.
    A popular prefix is thus computed at another verifier too, once the wait for its holder takes longer. If verifiers
    report no rates, the one with the most pages of the prompt comes first, and among equals the one with the fewest
    requests. A verifier with over ``imbalance`` requests more than the least loaded one comes last.

    ``pages`` holds what this gateway sent to verifiers, corrected by their page news. Prefixes of different tenants
    never match.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = read_options("prefix", options, _Options)
        self.pages = PageMap(self._options.most_pages)
        self.backlog = Backlog()
        self._ranked: OrderedDict[int, tuple[_PageNames, dict[str, Replica]]] = OrderedDict()

    def choose(self, ask: Ask, replicas: Sequence[Replica]) -> list[Replica]:
        """Ranks by time, or by pages and load."""
        names = self._remember(ask, replicas)
        most = min((replica.load for replica in replicas), default=0) + self._options.imbalance
        rates = {replica.instance: _rates(replica) for replica in replicas}
        all_report = None not in rates.values()

        def rank(replica: Replica) -> tuple[bool, float, int]:
            if replica.load > most and not all_report:
                return True, 0.0, replica.load
            cached, speed = self._cached_tokens(names, replica), rates[replica.instance]
            if not all_report or speed is None:
                return False, -cached, replica.load
            return replica.load > most, self._seconds(replica, speed, len(ask.prompt) - cached), replica.load

        return sorted(replicas, key=rank)

    def sent(self, ask: Ask, instance: str) -> None:
        """Notes that ``instance`` computes the part of the prompt that is not in its pages."""
        names, replicas = self._ranked.pop(id(ask), (_PageNames(ask), {}))
        replica = replicas.get(instance, Replica(instance, 0))
        cached = self._cached_tokens(names, replica)
        metrics.routed_tokens.labels("found").inc(cached)
        metrics.routed_tokens.labels("missing").inc(len(ask.prompt) - cached)
        if (speed := _rates(replica)) is not None:
            self.backlog.add(instance, (len(ask.prompt) - cached) / speed.prefill_tokens_per_s)
        self.pages.add(instance, names.of(*self._kind(replica)))

    def _seconds(self, replica: Replica, speed: _Rates, missing: int) -> float:
        """Backlog of ``replica``, prefill of ``missing`` tokens, and a decoding step for each of its requests."""
        self.backlog.report(replica.instance, replica.status, speed.queue_ms / 1e3)
        prefill = (2 + replica.load) * missing / speed.prefill_tokens_per_s
        return self.backlog.seconds(replica.instance) + prefill + replica.load / speed.tokens_per_s

    def _cached_tokens(self, names: _PageNames, replica: Replica) -> int:
        """Prompt tokens in the pages of ``replica``."""
        vocabulary, size = self._kind(replica)
        return self.pages.leading(replica.instance, names.of(vocabulary, size)) * size

    def _kind(self, replica: Replica) -> tuple[str, int]:
        size = replica.status.get("page_size") or self._options.page_tokens
        return str(replica.status.get("vocabulary", "")), int(size)

    def _remember(self, ask: Ask, replicas: Sequence[Replica]) -> _PageNames:
        """Keeps what `sent` needs; the oldest requests, which no verifier took, are dropped."""
        names = _PageNames(ask)
        self._ranked[id(ask)] = names, {replica.instance: replica for replica in replicas}
        if len(self._ranked) > _MOST_ASKED:
            self._ranked.popitem(last=False)
        return names


def _rates(replica: Replica) -> _Rates | None:
    """The rates that a verifier reports, or None."""
    try:
        return msgspec.convert(replica.status, _Rates)
    except msgspec.ValidationError:
        return None
