"""Reads requests that came over NATS to their end: NATS does not report whether their readers are still there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

from outrider.gateway.errors import DeadlinePassed, FatalRequest
from outrider.gateway.request.flight import Flight
from outrider.gateway.request.in_flight import Flights
from outrider.gateway.routing.job import Job
from outrider.gateway.stream.reassembly import split
from outrider.mesh.bus import Bus
from outrider.mesh.errors import Cancelled, Internal, InvalidRequest, OutriderError, Unavailable
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import get_logger
from outrider.wire.frames import Finish, Frame, encode_frame

Relay = Callable[[bytes], Awaitable[None]]

_log = get_logger("nats")


class Keeper:
    """Reads each flight to its end, so that the flight survives the death of its verifier and is charged.

    If a flight fails, a frame with an error and without a finish says so: the flight may be resumed. A flight whose
    deadline passes ends with the finish ``timeout``. A flight that takes over ``limit_s`` seconds ends for all readers.
    Clients cannot read the frames that verifiers publish of a filtered flight: the keeper publishes what filters pass.
    """

    def __init__(self, flights: Flights, bus: Bus, tasks: Tasks, limit_s: float) -> None:
        self._flights, self._bus, self._tasks, self._limit_s = flights, bus, tasks, limit_s
        self._readers: dict[Flight, asyncio.Task[None]] = {}

    def keep(
        self, flight: Flight, timeout_s: float | None = None, relay: Relay | None = None, start: Sequence[int] = ()
    ) -> None:
        """Reads ``flight`` from now on, for at most ``timeout_s`` seconds.

        Its frames also go to ``relay``, each choice from its token index in ``start`` on.
        """
        limit_s = min(timeout_s or self._limit_s, self._limit_s)
        task = self._tasks.spawn(self._keep(flight, limit_s, relay, start), "keep")
        self._readers[flight] = task
        flight.read_in_background(task)
        task.add_done_callback(lambda _: self._readers.pop(flight))

    async def drain(self) -> None:
        """Returns when all flights have ended."""
        while self._readers:
            await asyncio.wait(list(self._readers.values()))

    async def stop(self) -> None:
        """Leaves all flights to the gateways that are asked to resume them."""
        readers = dict(self._readers)
        for flight, task in readers.items():
            flight.disown()
            self._publish(flight, Unavailable("the gateway is shutting down"))
            task.cancel()
        await asyncio.gather(*readers.values(), return_exceptions=True)

    async def _keep(self, flight: Flight, limit_s: float, relay: Relay | None, start: Sequence[int]) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await self._read(flight, relay, start)
        except TimeoutError:
            self._end_for_all(flight, f"the request was ended: it took longer than {limit_s:g} s")
        except Cancelled as error:
            self._tell_cancelled(flight, error)
        except OutriderError as error:
            await self._fail(flight, error, relay)
        except Exception:
            _log.exception("a stream failed", request=flight.key.request)
            await self._fail(flight, Internal(), relay)
        finally:
            await self._flights.end(flight)

    async def _read(self, flight: Flight, relay: Relay | None, start: Sequence[int]) -> None:
        async with aclosing(flight.frames()) as batches:
            async for choice, frames in batches:
                job = flight.streams[choice].job
                if job.filters:
                    for frame in frames:
                        self._bus.publish(job.reader_subject, encode_frame(frame))
                if relay is not None:
                    await _relay(frames, relay, start[choice])

    async def _fail(self, flight: Flight, error: OutriderError, relay: Relay | None) -> None:
        self._publish(flight, error)
        if relay is not None:
            finish, index = _finish(flight, error), flight.record.first_indices[0]
            await relay(encode_frame(_failure_frame(flight.key.request, index, error, finish)))

    def _publish(self, flight: Flight, error: OutriderError) -> None:
        for stream, index in zip(flight.streams, flight.record.first_indices, strict=True):
            self._send(stream.job, _failure_frame(stream.job.request_id, index, error, _finish(flight, error)))

    def _end_for_all(self, flight: Flight, why: str) -> None:
        for stream in flight.streams:
            self._send(stream.job, Frame(stream.job.request_id, 0, [], [], [], Finish.CANCELLED, error=why))

    def _tell_cancelled(self, flight: Flight, error: Cancelled) -> None:
        """Tells clients of a filtered flight; others can read the frame that cancelled the request."""
        for job in [stream.job for stream in flight.streams if stream.job.filters]:
            end = Frame(job.request_id, 0, [], [], [], Finish.CANCELLED, error=error.message)
            self._bus.publish(job.reader_subject, encode_frame(end))

    def _send(self, job: Job, frame: Frame) -> None:
        """Publishes ``frame`` for clients, and for gateways."""
        self._flights.reader.end(job.subject, frame)
        if job.filters:
            self._bus.publish(job.reader_subject, encode_frame(frame))


async def _relay(frames: Sequence[Frame], relay: Relay, start: int) -> None:
    """Sends the parts of ``frames`` from the token index ``start`` on to ``relay``."""
    for frame in frames:
        relayed = min(start - frame.first_index, len(frame.tokens))
        fresh = split(frame, relayed)[1] if relayed > 0 else frame
        if fresh.tokens or fresh.finish is not None:
            await relay(encode_frame(fresh))


def _finish(flight: Flight, error: OutriderError) -> Finish | None:
    """The finish that tells of an ``error``; None if the flight may be resumed."""
    if isinstance(error, DeadlinePassed):
        return Finish.TIMEOUT
    if all(stream.failed is not error for stream in flight.streams):
        return None
    if isinstance(error, InvalidRequest):
        return Finish.REFUSED
    return Finish.ERROR if isinstance(error, Internal | FatalRequest) else None


def _failure_frame(request_id: str, index: int, error: OutriderError, finish: Finish | None) -> Frame:
    return Frame(request_id, index, [], [], [], finish, error=error.message)
