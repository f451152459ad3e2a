"""Which verifiers have which KV pages, as far as a gateway knows."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence


class PageMap:
    """Pages by name and by verifier. Holds at most ``most`` pages; the oldest are dropped first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._holders: OrderedDict[bytes, set[str]] = OrderedDict()
        self._pages: defaultdict[str, set[bytes]] = defaultdict(set)

    def __len__(self) -> int:
        return len(self._holders)

    def add(self, instance: str, names: Iterable[bytes]) -> None:
        """Adds pages of ``instance``."""
        for name in names:
            self._holders.setdefault(name, set()).add(instance)
            self._holders.move_to_end(name)
            self._pages[instance].add(name)
        while len(self._holders) > self._most:
            name, holders = self._holders.popitem(last=False)
            for holder in holders:
                self._pages[holder].discard(name)

    def drop(self, instance: str, names: Iterable[bytes]) -> None:
        """Removes pages of ``instance``."""
        for name in names:
            holders = self._holders.get(name, set())
            holders.discard(instance)
            self._pages[instance].discard(name)
            if not holders:
                self._holders.pop(name, None)

    def replace(self, instance: str, names: Iterable[bytes]) -> None:
        """Makes these the only pages of ``instance``."""
        now = list(names)
        self.drop(instance, self._pages[instance].difference(now))
        self.add(instance, now)

    def forget(self, instance: str) -> None:
        """Removes ``instance``."""
        self.drop(instance, list(self._pages[instance]))
        del self._pages[instance]

    def of(self, instance: str) -> frozenset[bytes]:
        """The pages of ``instance``."""
        return frozenset(self._pages.get(instance, ()))

    def leading(self, instance: str, names: Sequence[bytes]) -> int:
        """The number of ``names``, from the first on, that ``instance`` has without a gap."""
        missing = (place for place, name in enumerate(names) if instance not in self._holders.get(name, ()))
        return next(missing, len(names))
