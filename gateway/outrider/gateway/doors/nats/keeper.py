"""Requests that came over NATS, kept alive until they end: nobody can tell whether their readers are still there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

from outrider.gateway.errors import Late
from outrider.gateway.generation.flight import Flight
from outrider.gateway.generation.in_flight import Flights
from outrider.gateway.streams.reassembly import split
from outrider.mesh.bus import Bus
from outrider.mesh.errors import Cancelled, Internal, OutriderError, Unavailable
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import get_logger
from outrider.wire.frames import Finish, Frame, encode_frame

Relay = Callable[[bytes], Awaitable[None]]

_log = get_logger("nats")


class Keeper:
    """Reads each flight to its end, so that it goes on when its verifier dies, and is charged.

    A flight that fails is told of by a frame with an error and no finish: it may be resumed. One whose deadline has
    passed ends as at a verifier, and one that takes longer than ``limit_s`` is ended for all its readers.
    """

    def __init__(self, flights: Flights, bus: Bus, tasks: Tasks, limit_s: float) -> None:
        self._flights, self._bus, self._tasks, self._limit_s = flights, bus, tasks, limit_s
        self._kept: dict[Flight, asyncio.Task[None]] = {}

    def keep(
        self, flight: Flight, timeout_s: float | None = None, relay: Relay | None = None, had: Sequence[int] = ()
    ) -> None:
        """Keeps ``flight`` from now on, for ``timeout_s`` at most.

        Its frames from index ``had`` of each choice on go to ``relay``, too.
        """
        limit_s = min(timeout_s or self._limit_s, self._limit_s)
        task = self._tasks.spawn(self._keep(flight, limit_s, relay, had), "keep")
        self._kept[flight] = task
        flight.read_in_background(task)
        task.add_done_callback(lambda _: self._kept.pop(flight))

    async def drain(self) -> None:
        """Returns when all have ended."""
        while self._kept:
            await asyncio.wait(list(self._kept.values()))

    async def stop(self) -> None:
        """Leaves those that run to whichever gateway is asked for them."""
        left = dict(self._kept)
        for flight, task in left.items():
            flight.disown()
            self._tell(flight, Unavailable("the gateway is shutting down"))
            task.cancel()
        await asyncio.gather(*left.values(), return_exceptions=True)

    async def _keep(self, flight: Flight, limit_s: float, relay: Relay | None, had: Sequence[int]) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await self._read(flight, relay, had)
        except TimeoutError:
            self._end(flight, limit_s)
        except Cancelled:
            pass  # by a frame that its readers have got
        except OutriderError as error:
            await self._fail(flight, error, relay)
        except Exception:
            _log.exception("a stream failed", request=flight.key.request)
            await self._fail(flight, Internal(), relay)
        finally:
            await self._flights.end(flight)

    async def _read(self, flight: Flight, relay: Relay | None, had: Sequence[int]) -> None:
        async with aclosing(flight.frames()) as batches:
            async for choice, frames in batches:
                for frame in frames if relay is not None else ():
                    known = min(had[choice] - frame.first_index, len(frame.tokens))
                    fresh = split(frame, known)[1] if known > 0 else frame
                    if relay is not None and (fresh.tokens or fresh.finish is not None):
                        await relay(encode_frame(fresh))

    async def _fail(self, flight: Flight, error: OutriderError, relay: Relay | None) -> None:
        self._tell(flight, error)
        if relay is not None:
            await relay(encode_frame(_note(flight.key.request, flight.record.first_indices[0], error)))

    def _tell(self, flight: Flight, error: OutriderError) -> None:
        for stream, index in zip(flight.streams, flight.record.first_indices, strict=True):
            self._bus.publish(stream.job.subject, encode_frame(_note(stream.job.request_id, index, error)))

    def _end(self, flight: Flight, limit_s: float) -> None:
        why = f"the request was ended: it took longer than {limit_s:g} s"
        for stream in flight.streams:
            end = Frame(stream.job.request_id, 0, [], [], [], Finish.CANCELLED, error=why)
            self._bus.publish(stream.job.subject, encode_frame(end))


def _note(request_id: str, index: int, error: OutriderError) -> Frame:
    finish = Finish.TIMEOUT if isinstance(error, Late) else None
    return Frame(request_id, index, [], [], [], finish, error=error.message)
