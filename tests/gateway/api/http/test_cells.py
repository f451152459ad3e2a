"""Obfuscated streams: cells of one size at ticks, whatever the events are, in virtual time."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator

import pytest
from outrider.gateway.api.http.cells import evenly, padded
from outrider.gateway.settings import GatewaySettings

from tests import virtual_time

SIZE = 256
CHUNK = b'data: {"choices":[{"text":"%b"}]}\nid: r:1\n\n'
DELTA = b'event: response.output_text.delta\ndata: {"delta":"%b"}\n\n'
BLOCK = b'event: content_block_delta\ndata: {"text":"%b"}\n\n'
DONE = b"data: [DONE]\nid: r:done\n\n"


def cells(batches: list[tuple[float, bytes]], multiple: int = 8) -> list[tuple[float, bytes]]:
    """The cells of ``batches`` after pauses, with their times."""
    sent: list[tuple[float, bytes]] = []

    async def events() -> AsyncGenerator[bytes, None]:
        for pause, batch in batches:
            await asyncio.sleep(pause)
            yield batch

    async def main() -> None:
        settings = GatewaySettings(obfuscation_bytes=SIZE, obfuscation_tick_s=0.5, obfuscation_cells=multiple)
        async for cell in evenly(events(), settings):
            sent.append((asyncio.get_running_loop().time(), cell))

    virtual_time.run(main())
    return sent


def without_padding(data: bytes) -> list[bytes]:
    """The data of events, without ``obfuscation``."""
    lines = [line.removeprefix(b"data: ") for line in data.split(b"\n") if line.startswith(b"data: ")]
    found = [json.loads(line) if line.startswith(b"{") else line for line in lines]
    for each in found:
        if isinstance(each, dict):
            each.pop("obfuscation", None)
    return found


@pytest.mark.parametrize("form", [CHUNK, DELTA, BLOCK])
def test_cells_have_one_size_and_come_at_ticks_and_say_the_same(form: bytes) -> None:
    dice = random.Random(form)
    batches = [(dice.choice([0, 0.1, 0.7, 3]), form % (b"a" * dice.randrange(300))) for _ in range(40)]
    batches += [(0.0, DONE)]
    sent = cells(batches)
    assert {len(cell) for _, cell in sent} == {SIZE}
    assert [time for time, _ in sent] == [0.5 * place for place in range(len(sent))]
    assert len(sent) % 8 == 0
    assert sent[-1][1].endswith(DONE)
    said = b"".join(cell for _, cell in sent)
    assert without_padding(said) == without_padding(b"".join(batch for _, batch in batches))


def test_fast_and_slow_answers_of_about_one_length_look_the_same() -> None:
    fast = cells([(0.1, CHUNK % b"abc")] * 6 + [(0.0, DONE)], 16)
    slow = cells([(0.0, CHUNK % b"a"), (5.0, CHUNK % b"bcdefghi"), (0.0, DONE)], 16)
    shapes = [[(time, len(cell)) for time, cell in sent] for sent in (fast, slow)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("form", [CHUNK, DELTA, BLOCK])
def test_any_length_is_padded_to_a_multiple(form: bytes) -> None:
    for length in range(SIZE):
        event = padded(form % (b"a" * length), SIZE)
        assert len(event) % SIZE == 0
        assert without_padding(event) == without_padding(form % (b"a" * length))
        assert event.endswith(b"\n\n")
        assert event.count(b"\n\n") == 1


def test_the_field_is_openais_and_its_text_random() -> None:
    (one, other) = (json.loads(padded(CHUNK % b"a", SIZE).splitlines()[0][6:]) for _ in range(2))
    assert one["obfuscation"] != other["obfuscation"]
    assert len(padded(b"", SIZE)) == SIZE
    assert padded(b"", SIZE).startswith(b":")
