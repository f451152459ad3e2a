"""The router that sends prompts to where their beginnings were computed, unless it takes longer to wait for it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from outrider.gateway import metrics
from outrider.gateway.routing.backlog import Backlog
from outrider.gateway.routing.page_map import PageMap
from outrider.gateway.routing.router import Ask, Replica, read_options
from outrider.wire.page_news import NAME_BYTES
from outrider.wire.prefixes import chain_hashes

_MOST_ASKED = 256


class _Options(msgspec.Struct, forbid_unknown_fields=True):
    page_tokens: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 16
    most_pages: Annotated[int, msgspec.Meta(ge=1)] = 1 << 18
    imbalance: Annotated[int, msgspec.Meta(ge=0)] = 8


class _Rates(msgspec.Struct, frozen=True):
    """What a verifier tells of its speed and its queue."""

    prefill_tokens_per_s: Annotated[float, msgspec.Meta(gt=0)]
    tokens_per_s: Annotated[float, msgspec.Meta(gt=0)]
    queue_ms: Annotated[float, msgspec.Meta(ge=0)]


class _Names:
    """Names of a prompt's pages, as verifiers of each vocabulary and page size have them."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self._names: dict[tuple[str, int], list[bytes]] = {}

    def of(self, vocabulary: str, size: int) -> list[bytes]:
        if (vocabulary, size) not in self._names:
            chain = chain_hashes(vocabulary.encode(), self.ask.tenant, self.ask.prompt, size)
            self._names[vocabulary, size] = [name[:NAME_BYTES] for name in chain]
        return self._names[vocabulary, size]


class Prefix:
    """Whoever will have the prompt computed first, by the pages it has, its queue and its speed.

    What counts is the time that the verifier is busy with what it has, and what the tokens take that are not in its
    pages, for the request, for the next one and for each that is there: all of these wait for them. So a prefix that
    many ask for is computed at another verifier too, once waiting for the one that has it takes longer. Where verifiers
    tell no rates, whoever has most of the prompt's pages is first, then whoever has the fewest requests. A verifier
    with over ``imbalance`` requests more than the least loaded one is asked last.

    What verifiers have is what this gateway sent them, in ``pages``, which the verifiers' own news correct. Prefixes
    of different tenants are never the same.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = read_options("prefix", options, _Options)
        self.pages = PageMap(self._options.most_pages)
        self.backlog = Backlog()
        self._asked: OrderedDict[int, tuple[_Names, dict[str, Replica]]] = OrderedDict()

    def choose(self, ask: Ask, replicas: Sequence[Replica]) -> list[Replica]:
        """By time, or by pages and load."""
        names = self._remember(ask, replicas)
        most = min((replica.load for replica in replicas), default=0) + self._options.imbalance
        rates = {replica.instance: _rates(replica) for replica in replicas}
        told = None not in rates.values()

        def rank(replica: Replica) -> tuple[bool, float, int]:
            if replica.load > most and not told:
                return True, 0.0, replica.load
            found, known = self._found(names, replica), rates[replica.instance]
            if not told or known is None:
                return False, -found, replica.load
            return replica.load > most, self._seconds(replica, known, len(ask.prompt) - found), replica.load

        return sorted(replicas, key=rank)

    def sent(self, ask: Ask, instance: str) -> None:
        """Notes that ``instance`` is to compute what it lacks of the prompt."""
        names, replicas = self._asked.pop(id(ask), (_Names(ask), {}))
        replica = replicas.get(instance, Replica(instance, 0))
        found = self._found(names, replica)
        metrics.routed_tokens.labels("found").inc(found)
        metrics.routed_tokens.labels("missing").inc(len(ask.prompt) - found)
        if (known := _rates(replica)) is not None:
            self.backlog.add(instance, (len(ask.prompt) - found) / known.prefill_tokens_per_s)
        self.pages.add(instance, names.of(*self._kind(replica)))

    def _seconds(self, replica: Replica, known: _Rates, missing: int) -> float:
        """What ``missing`` tokens more cost at ``replica``, and a step beside each of its requests."""
        self.backlog.tell(replica.instance, replica.status, known.queue_ms / 1e3)
        computing = (2 + replica.load) * missing / known.prefill_tokens_per_s
        return self.backlog.seconds(replica.instance) + computing + replica.load / known.tokens_per_s

    def _found(self, names: _Names, replica: Replica) -> int:
        """Tokens of the prompt that ``replica`` has in pages."""
        vocabulary, size = self._kind(replica)
        return self.pages.leading(replica.instance, names.of(vocabulary, size)) * size

    def _kind(self, replica: Replica) -> tuple[str, int]:
        size = replica.status.get("page_size") or self._options.page_tokens
        return str(replica.status.get("vocabulary", "")), int(size)

    def _remember(self, ask: Ask, replicas: Sequence[Replica]) -> _Names:
        """Keeps what `sent` needs of this request; it may not come to that."""
        names = _Names(ask)
        self._asked[id(ask)] = names, {replica.instance: replica for replica in replicas}
        if len(self._asked) > _MOST_ASKED:
            self._asked.popitem(last=False)
        return names


def _rates(replica: Replica) -> _Rates | None:
    """None where a verifier does not tell them."""
    try:
        return msgspec.convert(replica.status, _Rates)
    except msgspec.ValidationError:
        return None
