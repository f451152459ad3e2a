"""What verifiers tell of their pages as they come and go: for routers, which send prompts to where their pages are.

A page goes by the first `NAME_BYTES` bytes of its name: routers choose by them and nothing else, so that two of the
same would cost a detour. Messages are numbered, so that who has missed one knows it and asks for all
(`Verifier.Pages`). Whoever takes one that speaks of what it knows already ends up with the same: the last word about a
page holds.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

ALL_SUBJECTS = "outrider.pages.*"
NAME_BYTES = 8


class PageNews(msgspec.Struct, array_like=True, frozen=True):
    """Pages that a verifier has or has no more since its news ``number - 1``.

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
    """News in ``data``; `msgspec.DecodeError` when it is none."""
    return _decoder.decode(data)


def news_subject(instance: str) -> str:
    """NATS subject of a verifier's news."""
    return ALL_SUBJECTS.replace("*", instance)


def join_names(names: Iterable[bytes]) -> bytes:
    """Short names of pages, joined."""
    return b"".join(name[:NAME_BYTES] for name in names)


def split_names(joined: bytes) -> list[bytes]:
    """The names in what `join_names` made."""
    return [joined[start : start + NAME_BYTES] for start in range(0, len(joined), NAME_BYTES)]
