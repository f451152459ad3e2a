"""The streams of a request's choices as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from outrider.gateway.sharing import Reader
from outrider.gateway.streams.stream import TokenStream
from outrider.wire.frames import Frame

_News = tuple[int, list[Frame]] | Exception | None


async def merged(streams: Sequence[TokenStream | Reader]) -> AsyncGenerator[tuple[int, list[Frame]], None]:
    """Frames of all streams as they come, those of one stream that came together with its place.

    The first failure of any is raised.
    """
    if len(streams) == 1:
        async with aclosing(streams[0].frames()) as frames:
            async for batch in frames:
                yield 0, batch
        return
    news: asyncio.Queue[_News] = asyncio.Queue()
    readers = [asyncio.create_task(_read(place, stream, news)) for place, stream in enumerate(streams)]
    reading = len(readers)
    try:
        while reading:
            item = await news.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                reading -= 1
            else:
                yield item
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.wait(readers)


async def _read(place: int, stream: TokenStream | Reader, news: asyncio.Queue[_News]) -> None:
    """Puts the stream's frames into ``news``, and how it ended: None, or the error."""
    try:
        async with aclosing(stream.frames()) as frames:
            async for batch in frames:
                news.put_nowait((place, batch))
        news.put_nowait(None)
    except Exception as error:
        news.put_nowait(error)
