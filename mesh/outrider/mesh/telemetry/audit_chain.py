"""Checks files of a `ChainedLog`: a line that was removed, changed, added or moved breaks the chain of its process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from outrider.mesh.telemetry.chained_log import line_hash


class ChainBroken(Exception):
    """The first line that does not follow the line before it, and why."""


class _Link(msgspec.Struct, frozen=True):
    instance: str
    serial: int
    previous: str


_decode = msgspec.json.Decoder(_Link).decode


@dataclass(slots=True)
class Chain:
    """The lines of one process: its name, the numbers of its first and its last line, and the hash of the last."""

    instance: str
    first: int
    last: int
    head: str


class ChainReader:
    """Follows the chains of all processes through the lines of one or several files, oldest file first.

    A process's first line may be missing, since older files may be; all others may not.

    Attributes:
        hashes: hashes of all lines so far.
        unreadable: number of lines that are no records: a disk that was full leaves parts of lines.
    """

    def __init__(self) -> None:
        self.hashes: set[str] = set()
        self.unreadable = 0
        self._chains: list[Chain] = []
        self._by_head: dict[str, Chain] = {}

    @property
    def chains(self) -> list[Chain]:
        """The chains so far, in the order of their first lines."""
        return self._chains

    def read(self, file: str, lines: Iterable[bytes]) -> None:
        """Reads ``lines``, without their ends; ``file`` names them in errors. Raises `ChainBroken`."""
        for number, line in enumerate(lines, 1):
            try:
                link = _decode(line)
            except msgspec.DecodeError:
                self.unreadable += 1
                continue
            self._follow(link, line_hash(line), f"{file}:{number}")

    def _follow(self, link: _Link, hashed: str, place: str) -> None:
        chain = self._by_head.pop(link.previous, None)
        if chain is not None and (chain.instance, chain.last + 1) == (link.instance, link.serial):
            chain.last, chain.head = link.serial, hashed
        elif self._begins(link):
            chain = Chain(link.instance, link.serial, link.serial, hashed)
            self._chains.append(chain)
        else:
            raise ChainBroken(
                f"{place}: line {link.serial} of {link.instance} does not follow {self._before(link)}: "
                f"a line was removed, changed, added or moved"
            )
        self._by_head[hashed] = chain
        self.hashes.add(hashed)

    def _begins(self, link: _Link) -> bool:
        """Whether the line may be the first of its process here."""
        if link.serial == 1:
            return not link.previous
        return all(chain.instance != link.instance for chain in self._chains)

    def _before(self, link: _Link) -> str:
        """The newest line of the same process so far, in words."""
        last = next((chain.last for chain in reversed(self._chains) if chain.instance == link.instance), None)
        return "any line" if last is None else f"line {last}"
