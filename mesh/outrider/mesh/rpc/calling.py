"""Unary calls of other services: on a lane to those that have one, by themselves else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import grpc
from outrider.mesh.addresses import parted
from outrider.mesh.errors import from_rpc
from outrider.mesh.rpc.client import channel, close_grpc
from outrider.mesh.rpc.framing import MESSAGE_BYTES
from outrider.mesh.rpc.lane import Lane

LONGEST = MESSAGE_BYTES // 2
"""Bytes of a request that goes on a lane; gRPC says what is wrong with one that is too long."""
_CONNECT_S = 1.0
_AGAIN_S = 5.0
"""For so long nobody tries a lane that could not be opened."""


class _Message(Protocol):
    def SerializeToString(self) -> bytes: ...  # noqa: N802

    @classmethod
    def FromString(cls, data: bytes) -> Any: ...  # noqa: N802


M = TypeVar("M", bound=_Message)


async def ask(address: str, method: str, request: _Message, answer: type[M], timeout: float, lanes: object = None) -> M:
    """The ``answer`` of ``method``, `/package.Service/Method`, at ``address`` (host:port).

    ``lanes`` is where that service told that it takes lanes, if it did. Where none can be opened, gRPC is used.
    Raises what the service raised, `Unavailable` where it is not reached, `DeadlineExceeded` after ``timeout`` seconds.
    Whoever stops waiting has the call cancelled there.
    """
    data, lane = request.SerializeToString(), None
    if isinstance(lanes, str) and lanes and len(data) <= LONGEST:
        known = _known()
        lane = known.there(lanes) or await known.opened(lanes)
    told = await (_alone(address, method, data, timeout) if lane is None else lane.ask(method, data, timeout))
    found: M = answer.FromString(told)
    return found


async def close_channels() -> None:
    """Closes the running loop's lanes and channels; calls in flight are cancelled."""
    _known().close()
    await close_grpc()


class _Known:
    """The lanes of one loop, by address."""

    def __init__(self) -> None:
        self._lanes: dict[str, Lane] = {}
        self._opening: dict[str, asyncio.Task[Lane | None]] = {}
        self._shut: dict[str, float] = {}

    def there(self, address: str) -> Lane | None:
        """The lane, where it is open."""
        lane = self._lanes.get(address)
        return lane if lane is not None and lane.open else None

    async def opened(self, address: str) -> Lane | None:
        """The lane once it is open; None where that fails, or has failed a moment ago."""
        if time.monotonic() < self._shut.get(address, 0.0):
            return None
        if address not in self._opening:
            self._opening[address] = asyncio.create_task(self._open(address))
        return await asyncio.shield(self._opening[address])

    def close(self) -> None:
        """Breaks all lanes."""
        for opening in self._opening.values():
            opening.cancel()
        for lane in list(self._lanes.values()):
            lane.abort()

    async def _open(self, address: str) -> Lane | None:
        host, port = parted(address)
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, lane = await asyncio.get_running_loop().create_connection(self._lane(address), host, port)
        except OSError:
            now = time.monotonic()
            self._shut = {each: until for each, until in self._shut.items() if until > now}
            self._shut[address] = now + _AGAIN_S
            return None
        finally:
            del self._opening[address]
        self._lanes[address] = lane
        return lane

    def _lane(self, address: str) -> Callable[[], Lane]:
        def ended(lane: Lane) -> None:
            if self._lanes.get(address) is lane:
                del self._lanes[address]

        return lambda: Lane(ended)


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Known] = WeakKeyDictionary()


def _known() -> _Known:
    loop = asyncio.get_running_loop()
    known = _of_loops.get(loop)
    if known is None:
        known = _of_loops[loop] = _Known()
    return known


async def _alone(address: str, method: str, data: bytes, timeout: float) -> bytes:
    try:
        return bytes(await channel(address).unary_unary(method)(data, timeout=timeout))
    except grpc.aio.AioRpcError as error:
        raise from_rpc(error) from None
