"""Page news: messages of verifiers about the pages that they store and evict, for routers that choose by pages.

A page is named by the first `NAME_BYTES` bytes of its chain hash: routers use the names only to choose a verifier, so
two pages of one short name cost a detour at most. News are numbered: a reader that missed some notices it, and asks for
all pages (`Verifier.Pages`). News about known pages change nothing: the last news of a page hold.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

ALL_SUBJECTS = "outrider.pages.*"
NAME_BYTES = 8


class PageNews(msgspec.Struct, array_like=True, frozen=True):
    """Pages that a verifier has stored or evicted since its news ``number - 1``.

    Numbers begin at 1 in each ``epoch``, which ends with the process at the latest. ``stored`` and ``evicted`` are
    short names, joined; none is in both.
    """

    instance: str
    epoch: str
    number: int
    stored: bytes
    evicted: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(PageNews)


def encode_news(news: PageNews) -> bytes:
    """MessagePack bytes of ``news``."""
    return _encoder.encode(news)


def decode_news(data: bytes) -> PageNews:
    """The news in ``data``; `msgspec.DecodeError` where there are none."""
    return _decoder.decode(data)


def news_subject(instance: str) -> str:
    """NATS subject of a verifier's page news."""
    return ALL_SUBJECTS.replace("*", instance)


def join_names(names: Iterable[bytes]) -> bytes:
    """Short names of pages, joined."""
    return b"".join(name[:NAME_BYTES] for name in names)


def split_names(joined: bytes) -> list[bytes]:
    """The short names in the result of `join_names`."""
    return [joined[start : start + NAME_BYTES] for start in range(0, len(joined), NAME_BYTES)]
