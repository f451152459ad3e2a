"""The router that sends prompts to where their beginnings were computed."""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from outrider.gateway.routing.router import Ask, Replica, read_options


class _Options(msgspec.Struct, forbid_unknown_fields=True):
    page_tokens: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 16
    most_pages: Annotated[int, msgspec.Meta(ge=1)] = 1 << 18
    imbalance: Annotated[int, msgspec.Meta(ge=0)] = 8


def page_hashes(tenant: str, prompt: Sequence[int], page_tokens: int) -> list[bytes]:
    """A name for each full page of ``prompt`` that fixes the page and all before it, by a chain of BLAKE2b."""
    chain, names = hashlib.blake2b(tenant.encode(), digest_size=16).digest(), []
    for start in range(0, len(prompt) - page_tokens + 1, page_tokens):
        page = array("i", prompt[start : start + page_tokens]).tobytes()
        chain = hashlib.blake2b(page, digest_size=16, key=chain).digest()
        names.append(chain)
    return names


class PageMap:
    """Which verifiers have which pages, as far as is known; of more than ``most`` pages, those unused longest go."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._holders: OrderedDict[bytes, set[str]] = OrderedDict()

    def add(self, instance: str, names: Iterable[bytes]) -> None:
        """Notes that ``instance`` has these pages."""
        for name in names:
            self._holders.setdefault(name, set()).add(instance)
            self._holders.move_to_end(name)
        while len(self._holders) > self._most:
            self._holders.popitem(last=False)

    def drop(self, instance: str, names: Iterable[bytes]) -> None:
        """Notes that ``instance`` has these pages no more."""
        for name in names:
            holders = self._holders.get(name, set())
            holders.discard(instance)
            if not holders:
                self._holders.pop(name, None)

    def leading(self, instance: str, names: Sequence[bytes]) -> int:
        """How many of ``names``, from the first on, ``instance`` has."""
        missing = (place for place, name in enumerate(names) if instance not in self._holders.get(name, ()))
        return next(missing, len(names))


class Prefix:
    """Whoever has computed most of the prompt's pages is first, then whoever has the fewest requests.

    What verifiers have is what this gateway sent them: ``pages``, which whoever hears of it from the verifiers
    themselves may correct. A verifier with over ``imbalance`` requests more than the least loaded one counts as one
    that has nothing and is asked last. Prefixes of different tenants are never the same.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = read_options("prefix", options, _Options)
        self.pages = PageMap(self._options.most_pages)

    def choose(self, ask: Ask, replicas: Sequence[Replica]) -> list[Replica]:
        """By pages and load."""
        names = self._names(ask)
        most = min((replica.load for replica in replicas), default=0) + self._options.imbalance

        def rank(replica: Replica) -> tuple[bool, int, int]:
            crowded = replica.load > most
            return crowded, 0 if crowded else -self.pages.leading(replica.instance, names), replica.load

        return sorted(replicas, key=rank)

    def sent(self, ask: Ask, instance: str) -> None:
        """Notes that ``instance`` is to compute the prompt's pages."""
        self.pages.add(instance, self._names(ask))

    def _names(self, ask: Ask) -> list[bytes]:
        return page_hashes(ask.tenant, ask.prompt, self._options.page_tokens)
