"""The newest line of a chain, which all processes that append to one file go on from."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

import msgspec

SUFFIX = ".head"
_BYTES = 512
"""Bytes of the file of a head: it is always written whole."""
_TAIL_BYTES = 1 << 20
"""Most bytes at the end of a log that are searched for its newest line."""
_LOCK_S = 1.0
_PAUSE_S = 0.005


class Head(msgspec.Struct, frozen=True):
    """The newest line of a chain.

    Attributes:
        chain: the chain's name; empty for the chain of one process.
        serial: the line's number, from 1; 0 before the first.
        hash: the line's hash, as `line_hash` makes it; empty before the first.
        inode: the file that the line is in.
        size: bytes of that file once the line was written.
        torn: whether the file ends in a part of a line.
    """

    chain: str = ""
    serial: int = 0
    hash: str = ""
    inode: int = 0
    size: int = 0
    torn: bool = False


class Link(msgspec.Struct, frozen=True):
    """What ties a line to the line before it; without a ``chain`` that is the one of the same ``instance``."""

    instance: str
    serial: int
    previous: str
    chain: str = ""

    @property
    def name(self) -> str:
        """The name of the line's chain."""
        return self.chain or self.instance


read_link = msgspec.json.Decoder(Link).decode
_read_head = msgspec.json.Decoder(Head).decode


def line_hash(line: bytes) -> str:
    """SHA-256 of a ``line`` without its end, hexadecimal, as the next line of its chain holds it."""
    return hashlib.sha256(line).hexdigest()


def stored_head(log: str) -> Head | None:
    """The head of the chain in the file ``log``; None where none is stored."""
    try:
        return _parsed(Path(log + SUFFIX).read_bytes())
    except FileNotFoundError:
        return None


@contextmanager
def extending(log: str) -> Iterator[int]:
    """Keeps other processes from appending to ``log``; the descriptor in the block is for `newest` and `keep`.

    `OSError` if the file of the head cannot be opened, or another process holds it for a second.
    """
    descriptor = _locked(log + SUFFIX)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def keep(descriptor: int, head: Head) -> None:
    """Stores ``head``, for all who append after this block of `extending`."""
    os.pwrite(descriptor, msgspec.json.encode(head).ljust(_BYTES), 0)


def newest(descriptor: int, log: str, file: os.stat_result) -> Head:
    """The head of the chain in ``log``, whose present state is ``file``, within the block of `extending`.

    That is the stored one, and the lines behind it if a process died before it could store a newer one. So a line that
    is cut off leaves a gap. Where no head is stored, the chain goes on from the file's last line of a chain.
    """
    stored = _parsed(os.pread(descriptor, _BYTES, 0))
    if stored is None:
        return _last(_lines(log, max(0, file.st_size - _TAIL_BYTES)))
    if file.st_ino != stored.inode or file.st_size <= stored.size:
        return stored
    return _followed(stored, _lines(log, max(stored.size, file.st_size - _TAIL_BYTES)))


def _parsed(data: bytes) -> Head | None:
    try:
        return _read_head(data)
    except msgspec.MsgspecError:
        return None


def _locked(name: str) -> int:
    ends = time.monotonic() + _LOCK_S
    while True:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.stat(name), os.fstat(descriptor)):
                return descriptor
        except (BlockingIOError, FileNotFoundError) as error:
            if time.monotonic() > ends:
                os.close(descriptor)
                raise OSError(error.errno, "another process holds its head", name) from None
        os.close(descriptor)
        time.sleep(_PAUSE_S)


def _lines(log: str, start: int) -> list[bytes]:
    with open(log, "rb") as file:
        file.seek(start)
        return file.read().split(b"\n")


def _links(lines: Iterable[bytes]) -> Iterator[tuple[Link, bytes]]:
    for line in lines:
        try:
            yield read_link(line), line
        except msgspec.MsgspecError:
            continue


def _last(lines: list[bytes]) -> Head:
    for link, line in _links(reversed(lines)):
        if link.chain:
            return Head(link.chain, link.serial, line_hash(line))
    return Head(token_hex(8))


def _followed(head: Head, lines: list[bytes]) -> Head:
    for link, line in _links(lines):
        if (link.chain, link.serial, link.previous) == (head.chain, head.serial + 1, head.hash):
            head = msgspec.structs.replace(head, serial=link.serial, hash=line_hash(line))
    return msgspec.structs.replace(head, torn=bool(lines[-1]))
