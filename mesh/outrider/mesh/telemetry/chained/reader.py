"""Checks files of a `ChainedLog`: a line that was removed, changed, added or moved breaks its chain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from outrider.mesh.telemetry.chained.head import Link, line_hash, read_link


class ChainBroken(Exception):
    """The first line that does not follow the line before it, and why."""


@dataclass(slots=True)
class Chain:
    """The lines of one chain: its name, the numbers of its first and its last line, and the hash of the last."""

    name: str
    first: int
    last: int
    head: str


class ChainReader:
    """Follows the chains through the lines of one or several files, oldest file first.

    A chain's first line may be missing, since older files may be; all others may not. The processes that append to a
    file share its chain. Lines without one are of processes that wrote to standard error, or of a version in which each
    process had its own.

    Attributes:
        hashes: hashes of all lines so far.
        unreadable: number of lines that are no records: a disk that was full leaves parts of lines.
    """

    def __init__(self) -> None:
        self.hashes: set[str] = set()
        self.unreadable = 0
        self._chained_here = False
        self._chains: list[Chain] = []
        self._by_head: dict[str, Chain] = {}

    @property
    def chains(self) -> list[Chain]:
        """The chains so far, in the order of their first lines."""
        return self._chains

    def read(self, file: str, lines: Iterable[bytes]) -> None:
        """Reads ``lines``, without their ends; ``file`` names them in errors. Raises `ChainBroken`."""
        self._chained_here = False
        for number, line in enumerate(lines, 1):
            try:
                link = read_link(line)
            except msgspec.DecodeError:
                self.unreadable += 1
                continue
            self._follow(link, line_hash(line), f"{file}:{number}")

    def _follow(self, link: Link, hashed: str, place: str) -> None:
        chain = self._by_head.pop(link.previous, None)
        if chain is not None and (chain.name, chain.last + 1) == (link.name, link.serial):
            chain.last, chain.head = link.serial, hashed
        elif self._begins(link):
            chain = Chain(link.name, link.serial, link.serial, hashed)
            self._chains.append(chain)
        else:
            raise ChainBroken(f"{place}: {self._why(link)}: a line was removed, changed, added or moved")
        self._chained_here = self._chained_here or bool(link.chain)
        self._by_head[hashed] = chain
        self.hashes.add(hashed)

    def _begins(self, link: Link) -> bool:
        """Whether the line may be the first of its chain here: a file has one chain, beside lines of older versions."""
        if self._chained_here:
            return False
        if link.serial == 1:
            return not link.previous
        return all(chain.name != link.name for chain in self._chains)

    def _why(self, link: Link) -> str:
        last = next((chain.last for chain in reversed(self._chains) if chain.name == link.name), None)
        if last is None and self._chained_here:
            return f"line {link.serial} of {link.name} is not in the chain of this file"
        return f"line {link.serial} of {link.name} does not follow {'any line' if last is None else f'line {last}'}"
