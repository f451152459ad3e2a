"""The frames of a gateway's streams, over a real broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from outrider.gateway.stream.frame_reader import FrameReader
from outrider.mesh.bus import Bus
from outrider.wire.frames import Finish, Frame, decode_frame, encode_frame, encode_tagged

from tests.waiting import eventually

ANSWER = "tok.t.r"


def frame(index: int, finish: Finish | None = None) -> Frame:
    return Frame("r", index, [index], ["x"], [""], finish)


async def opened(bus: Bus, instance: str) -> FrameReader:
    reader = FrameReader(bus, instance)
    await reader.open()
    return reader


def send(bus: Bus, subject: str, *frames: tuple[int, Frame]) -> None:
    (batch,) = encode_tagged([(tag, encode_frame(each)) for tag, each in frames])
    bus.publish(subject, batch)


def collect(frames: list[Frame]) -> Callable[[Frame], None]:
    return frames.append


async def test_a_stream_gets_the_frames_with_its_tag_until_it_is_closed(bus: Bus) -> None:
    reader = await opened(bus, "here")
    one, other, unread = reader.reading(ANSWER), reader.reading("tok.t.other"), reader.reading(ANSWER)
    to_one: list[Frame] = []
    to_other: list[Frame] = []
    one.begin(to_one.append)
    other.begin(to_other.append)
    send(bus, reader.subject, (one.tag, frame(0)), (unread.tag, frame(7)), (other.tag, frame(1)), (one.tag, frame(2)))
    await eventually(lambda: len(to_one) == 2)
    assert (to_one, to_other) == ([frame(0), frame(2)], [frame(1)])
    one.close()
    one.close()
    send(bus, reader.subject, (one.tag, frame(3)), (other.tag, frame(4)))
    await eventually(lambda: len(to_other) == 2)
    assert len(to_one) == 2


async def test_a_stream_that_fails_to_take_a_frame_costs_no_other_stream_one(bus: Bus) -> None:
    reader = await opened(bus, "robust")
    broken, whole = reader.reading(ANSWER), reader.reading(ANSWER)
    taken: list[Frame] = []

    def fail(_: Frame) -> None:
        raise ValueError

    broken.begin(fail)
    whole.begin(taken.append)
    send(bus, reader.subject, (broken.tag, frame(0)), (whole.tag, frame(0)))
    await eventually(lambda: taken == [frame(0)])


async def test_an_end_for_all_readers_reaches_every_gateway_and_the_answers_subject(bus: Bus) -> None:
    reader, elsewhere = await opened(bus, "ending"), await opened(bus, "elsewhere")
    heard: dict[str, list[Frame]] = {"own": [], "foreign": [], "other answer": [], "subject": []}
    reading = reader.reading(ANSWER)
    reading.begin(heard["own"].append)
    elsewhere.reading(ANSWER).begin(heard["foreign"].append)
    elsewhere.reading("tok.t.other").begin(heard["other answer"].append)
    await bus.subscribe(ANSWER, lambda message: heard["subject"].append(decode_frame(message.data)))
    end = frame(5, Finish.CANCELLED)
    reading.end(end)
    await eventually(lambda: heard["own"] and heard["foreign"] and heard["subject"])
    assert heard == {"own": [end], "foreign": [end], "other answer": [], "subject": [end]}


@pytest.mark.parametrize("instances", [("a", "b"), ("a", "a")])
async def test_frames_for_one_process_find_no_stream_of_another(bus: Bus, instances: tuple[str, str]) -> None:
    """Not even of one with the same name, which may have died before."""
    readers = [await opened(bus, instance) for instance in instances]
    readings = [reader.reading(ANSWER) for reader in readers]
    heard: list[list[Frame]] = [[], []]
    for reading, frames in zip(readings, heard, strict=True):
        reading.begin(collect(frames))
    for place, reading in enumerate(readings):
        send(bus, reading.subject, (reading.tag, frame(place)))
    await eventually(lambda: all(heard))
    assert heard == [[frame(0)], [frame(1)]]
