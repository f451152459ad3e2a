"""What a client sees of a bare connection to a gateway."""

from __future__ import annotations

import asyncio
import contextlib

from outrider.loadtest.attack.requests import Connection


async def ends(connection: Connection, seconds: float) -> bool:
    """Whether the gateway closes the connection within ``seconds``."""
    try:
        async with asyncio.timeout(seconds):
            while await connection.reader.read(1 << 16):
                pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


async def count(connection: Connection, mark: bytes, most: int, seconds: float) -> int:
    """How often ``mark`` arrives within ``seconds``, up to ``most``."""
    data = b""
    with contextlib.suppress(TimeoutError, OSError):
        async with asyncio.timeout(seconds):
            while data.count(mark) < most and (part := await connection.reader.read(1 << 16)):
                data += part
    return data.count(mark)
