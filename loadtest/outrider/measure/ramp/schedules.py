"""When the requests of an open load arrive: at random, in bursts, or as in a recorded trace."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

BLOCK = 512
"""Tokens of a block of a trace."""
_IDS = 300, 4000
"""Token ids of a trace's prompts: ordinary ones of every vocabulary."""


class ScheduleError(ValueError):
    """A schedule cannot be made; the message is one sentence for the user."""


class Arrival(msgspec.Struct, frozen=True):
    """A request: seconds after the beginning; of a trace also its prompt's token ids and the tokens of its answer."""

    at: float
    prompt: list[int] | None = None
    max_tokens: int | None = None


Schedule = Callable[[float, int], Iterator[Arrival]]
"""Arrivals without end, by the requests a second on average and a seed."""


class Recorded(msgspec.Struct, frozen=True):
    """A line of a trace in the format of Mooncake's (https://github.com/kvcache-ai/Mooncake): milliseconds, lengths in
    tokens, and for each block of the prompt an id, which prompts with the same beginning share."""

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int] = []


def schedule(text: str) -> Schedule:
    """The schedule that ``text`` names: ``poisson``, ``bursts:N`` or ``trace:FILE``.

    Raises:
        ScheduleError: it is none of these, or the file is no trace.
    """
    name, _, value = text.partition(":")
    if name == "poisson" and not value:
        return poisson
    if name == "bursts" and value.isdecimal() and int(value) > 0:
        return partial(bursts, int(value))
    if name == "trace" and value:
        return partial(replayed, recorded(Path(value)))
    raise ScheduleError(f"--arrivals {text}: it is poisson, bursts:N or trace:FILE")


def poisson(rate: float, seed: int) -> Iterator[Arrival]:
    """Arrivals that do not depend on each other."""
    return bursts(1, rate, seed)


def bursts(size: int, rate: float, seed: int) -> Iterator[Arrival]:
    """Bursts of ``size`` requests at once; the bursts do not depend on each other."""
    draw, at = random.Random(seed), 0.0
    while True:
        at += draw.expovariate(rate / size)
        yield from itertools.repeat(Arrival(at), size)


def recorded(path: Path) -> list[Recorded]:
    """The lines of a trace, in order of time.

    Raises:
        ScheduleError: the file cannot be read, has fewer than two requests, or takes no time.
    """
    try:
        lines = [msgspec.json.decode(line, type=Recorded) for line in path.read_bytes().splitlines() if line.strip()]
    except (OSError, msgspec.DecodeError) as error:
        raise ScheduleError(f"cannot read a trace from {path}: {error}") from error
    lines.sort(key=lambda line: line.timestamp)
    if len(lines) < 2 or lines[0].timestamp == lines[-1].timestamp:
        raise ScheduleError(f"{path} is no trace: it needs two requests at different times")
    return lines


def replayed(lines: list[Recorded], rate: float, seed: int) -> Iterator[Arrival]:
    """The trace over and over, faster or slower so that ``rate`` holds; no replay shares blocks with another."""
    began = lines[0].timestamp
    span = (lines[-1].timestamp - began) * len(lines) / (len(lines) - 1)  # one more gap before it begins anew
    stretch = len(lines) / rate / span
    for replay in itertools.count():
        for number, line in enumerate(lines):
            at = (line.timestamp - began + replay * span) * stretch
            yield Arrival(at, _prompt(line, f"{seed} {replay}", number), line.output_length)


def _prompt(line: Recorded, salt: str, number: int) -> list[int]:
    ids: list[int] = []
    for place in range(-(-line.input_length // BLOCK)):
        block = line.hash_ids[place] if place < len(line.hash_ids) else f"{number} {place}"
        draw = random.Random(f"{salt} {block}")
        ids += (draw.randrange(*_IDS) for _ in range(BLOCK))
    return ids[: line.input_length]
