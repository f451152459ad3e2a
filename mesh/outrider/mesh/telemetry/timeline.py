"""Times of steps, draft passes and messages, in a file, for `outrider trace-steps`.

Until `start_timeline` has been given a file, `timeline()` is None and the hot paths do nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Literal

import msgspec
from outrider.mesh.errors import ConfigError
from outrider.mesh.telemetry.logs import get_logger

MOST_BYTES = 64 << 20
"""A process writes no more than this."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_log = get_logger("timeline")


class _Event(msgspec.Struct, frozen=True, omit_defaults=True):
    at: float
    instance: str


class Began(_Event, frozen=True, tag="began"):
    """A process writes from ``at`` on; ``host`` names the start of the machine whose clock it reads."""

    kind: str
    host: str


class Grown(msgspec.Struct, frozen=True):
    """A tree: the length of the sequence that it hangs from, its guesses, and how deep they go."""

    session: int
    length: int
    nodes: int
    depth: int

    @classmethod
    def of(cls, session: int, length: int, parents: Sequence[int]) -> Grown:
        """A tree whose nodes have these ``parents``, each before its children, -1 at the top."""
        depths: list[int] = []
        for parent in parents:
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return cls(session, length, len(parents), max(depths, default=0))


class Stepped(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a step did for one sequence.

    Attributes:
        length: tokens of the sequence before the step.
        decided: tokens that the step added.
        bought: guesses that the step verified, by drafter.
        accepted: guesses among those that came true.
        trees: proposers' trees that agree with the sequence, as far as they go on from it.
    """

    session: int
    request: str
    length: int
    decided: int
    bought: dict[str, int] = {}
    accepted: int = 0
    trees: list[Grown] = []


class Step(_Event, frozen=True, tag="step"):
    """A step of the target: when it began, and the seconds it took, of which it waited for its own drafters."""

    took: float
    waited: float
    rows: int
    prompt_rows: int
    sequences: list[Stepped]


class Pass(_Event, frozen=True, tag="pass"):
    """A piece of a proposer's drafting: when it began, the seconds it took, and the trees that it made or improved."""

    took: float
    trees: list[Grown]


class Taken(_Event, frozen=True, tag="taken"):
    """The engine was offered a tree that is ``behind`` tokens late. It is ``kept`` where it agrees with those."""

    tree: Grown
    source: str
    behind: int
    kept: bool


class Told(msgspec.Struct, frozen=True):
    """Of a message: a session, and the tokens that the sequence has with what the message says."""

    session: int
    length: int


class Message(_Event, frozen=True, tag="message"):
    """A message between a verifier and a proposer, as it is sent and as it is heard."""

    what: Literal["opens", "commits", "trees"]
    heard: bool
    told: list[Told]


Event = Began | Step | Pass | Taken | Message


class Timeline:
    """Appends events to a file, up to `MOST_BYTES` or until a write fails. For any thread: an event is one write."""

    def __init__(self, file: int, instance: str) -> None:
        self._file, self.instance = file, instance
        self._encode = msgspec.json.Encoder().encode
        self._left = MOST_BYTES

    def note(self, event: Event) -> None:
        """Writes down an event; never fails, since steps call it."""
        line = self._encode(event) + b"\n"
        before, self._left = self._left, self._left - len(line)
        if self._left < 0:
            if before >= 0:
                _log.warning("the time line is full", bytes=MOST_BYTES)
            return
        try:
            os.write(self._file, line)
        except OSError as error:
            self._left = -1
            _log.warning("the time line ends: it cannot be written", why=error.strerror)

    def message(self, what: Literal["opens", "commits", "trees"], heard: bool, told: Sequence[tuple[int, int]]) -> None:
        """Writes down a message of sessions and lengths, unless it says nothing."""
        if told:
            self.note(Message(perf_counter(), self.instance, what, heard, [Told(*each) for each in told]))


class _State:
    timeline: Timeline | None = None


def start_timeline(kind: str, instance: str, path: str) -> None:
    """Has this process append its events to the file at ``path``; does nothing where ``path`` is empty.

    Several processes may append to one file.

    Raises:
        ConfigError: the file cannot be written.
    """
    if not path:
        return
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"timeline = {path} cannot be written: {error.strerror}") from None
    _State.timeline = Timeline(file, instance)
    _State.timeline.note(Began(perf_counter(), instance, kind, _host()))


def timeline() -> Timeline | None:
    """Where events go; None where nobody wants them."""
    return _State.timeline


def read_events(paths: Sequence[Path]) -> Iterator[Event]:
    """The events of files, one file after another.

    Raises:
        OSError: a file cannot be read.
        msgspec.DecodeError: a line is no event.
    """
    decode = msgspec.json.Decoder(Event).decode
    for path in paths:
        yield from map(decode, path.read_bytes().splitlines())


def _host() -> str:
    """Name of the machine since it started: `perf_counter` tells the same time to all that have the same name."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return os.uname().nodename
