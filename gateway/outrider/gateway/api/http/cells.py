"""Obfuscated streams: cells of one size at even times, whatever tokens come.

The tokens that speculation brings in a step show in the sizes and times of events, and tell an observer of an encrypted
stream what it is about ("Privacy Risks of Speculative Decoding in Large Language Models", arXiv 2411.01076).
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncGenerator

from outrider.gateway.settings import GatewaySettings

_FIELD = b',"obfuscation":"%b"'
_LEAST = len(_FIELD) - 2
"""Bytes of the field without its text."""


async def evenly(events: AsyncGenerator[bytes, None], settings: GatewaySettings) -> AsyncGenerator[bytes, None]:
    """``events`` in cells of ``obfuscation_bytes``, one every ``obfuscation_tick_s``, also while there is no event.

    Each tick takes one batch of events, and the next when it has been sent. The last batch waits until the number of
    cells is a multiple of ``obfuscation_cells``: clients may hang up behind it.
    """
    loop = asyncio.get_running_loop()
    size, multiple = settings.obfuscation_bytes, settings.obfuscation_cells
    tick, sent, cells, last = loop.time(), 0, b"", b""
    news = asyncio.create_task(_next(events))
    try:
        while cells or last or sent % multiple or not (news.done() and news.result() is None):
            await asyncio.sleep(tick - loop.time())
            tick = max(tick + settings.obfuscation_tick_s, loop.time())
            if not cells and news.done() and (batch := news.result()) is not None:
                cells, news = padded(batch, size), asyncio.create_task(_next(events))
                await asyncio.sleep(0)  # for the generator to end, if that was its last batch
                if news.done() and news.result() is None:
                    cells, last = b"", cells
            if last and (sent + len(last) // size) % multiple == 0:
                cells, last = last, b""
            yield cells[:size] or padded(b"", size)
            cells, sent = cells[size:], sent + 1
    finally:
        news.cancel()
        await asyncio.wait({news})
        await events.aclose()


def padded(events: bytes, size: int) -> bytes:
    """``events``, made as long as the next multiple of ``size`` by random characters.

    They are in the field ``obfuscation`` of the last event if that is a chunk or a delta of OpenAI's and has the room,
    and else in a comment. No event at all becomes a comment of ``size`` bytes.
    """
    missing = -len(events) % size or (0 if events else size)
    if missing == 1:  # a comment has two bytes at least
        missing += size
    begin = events.rfind(b"\n\n", 0, -2) + 2 if b"\n\n" in events[:-2] else 0
    kind = events[begin:].partition(b"\n")[0]
    if missing >= _LEAST and (kind.startswith(b"data: {") or kind.endswith(b".delta")):
        end = events.rindex(b"}\n")
        return events[:end] + _FIELD % _random(missing - _LEAST) + events[end:]
    return (b":%b\n" % _random(missing - 2) if missing else b"") + events


def _random(length: int) -> bytes:
    return base64.b64encode(os.urandom(length))[:length]


async def _next(events: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(events, None)
