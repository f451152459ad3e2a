"""Reads the frames of all streams of a gateway from the broker: a verifier sends those of one step in one message."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable

import msgspec
from outrider.mesh.bus import Bus, Message
from outrider.mesh.telemetry import get_logger
from outrider.wire.frames import Frame, decode_end, decode_tagged, encode_end, encode_frame, frames_subject
from outrider.wire.subjects import STREAMS_ENDED

Receive = Callable[[Frame], None]

_TAG_BITS = 62
_log = get_logger("stream")


class FrameReader:
    """Passes each frame for this gateway to the stream with the frame's tag.

    Verifiers learn the gateway's ``subject`` and the tag with each job. An end that a gateway decides for all readers
    of an answer comes as a notice, whichever gateway decided it.
    """

    def __init__(self, bus: Bus, instance: str) -> None:
        self._bus, self.subject = bus, frames_subject(instance)
        # a random beginning: frames for the streams of an earlier process of this name find no stream
        self._tags = itertools.count(secrets.randbits(_TAG_BITS))
        self._by_tag: dict[int, Receive] = {}
        self._by_answer: dict[str, set[Reading]] = {}

    @property
    def connected(self) -> bool:
        """Whether the broker is connected."""
        return self._bus.connected

    async def open(self) -> None:
        """Begins to read."""
        await self._bus.subscribe(self.subject, self._on_frames)
        await self._bus.subscribe(STREAMS_ENDED, self._on_end)

    def reading(self, answer: str) -> Reading:
        """What a stream reads of the answer whose frames are published on the subject ``answer``."""
        return Reading(self, next(self._tags), answer)

    def end(self, answer: str, frame: Frame) -> None:
        """Ends an answer for all its readers with ``frame``: those of its subject, and all gateways."""
        self._bus.publish(answer, encode_frame(frame))
        self.notify(answer, frame)

    def notify(self, answer: str, frame: Frame) -> None:
        """Tells all gateways of a last ``frame`` that the subject ``answer`` has already."""
        self._bus.publish(STREAMS_ENDED, encode_end(answer, frame))

    def add(self, reading: Reading, receive: Receive) -> None:
        """Passes the frames for ``reading`` to ``receive`` from now on."""
        self._by_tag[reading.tag] = receive
        self._by_answer.setdefault(reading.answer, set()).add(reading)

    def remove(self, reading: Reading) -> None:
        """Ends `add`."""
        if self._by_tag.pop(reading.tag, None) is not None:
            readings = self._by_answer[reading.answer]
            readings.discard(reading)
            if not readings:
                del self._by_answer[reading.answer]

    def _on_frames(self, message: Message) -> None:
        for tag, frame in decode_tagged(message.data):
            self._pass(tag, frame)

    def _on_end(self, message: Message) -> None:
        answer, frame = decode_end(message.data)
        for reading in list(self._by_answer.get(answer, ())):
            self._pass(reading.tag, frame)

    def _pass(self, tag: int, frame: Frame) -> None:
        if (receive := self._by_tag.get(tag)) is None:
            return
        try:
            receive(frame)
        except Exception:
            _log.exception("a stream failed to take a frame", request=frame.request)


class Reading(msgspec.Struct, frozen=True, eq=False):
    """One stream's part of a `FrameReader`."""

    _reader: FrameReader
    tag: int
    answer: str

    @property
    def subject(self) -> str:
        """The subject of the gateway."""
        return self._reader.subject

    def end(self, frame: Frame) -> None:
        """Ends the answer for all its readers with ``frame``."""
        self._reader.end(self.answer, frame)

    def begin(self, receive: Receive) -> None:
        """Passes frames to ``receive`` from now on."""
        self._reader.add(self, receive)

    def close(self) -> None:
        """Passes no more frames. May be called twice."""
        self._reader.remove(self)
