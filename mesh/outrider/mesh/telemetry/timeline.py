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
"""Most bytes that a process writes."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_log = get_logger("timeline")


class _Event(msgspec.Struct, frozen=True, omit_defaults=True):
    at: float
    instance: str


class ProcessStart(_Event, frozen=True, tag="began"):
    """The first event of a process; ``host`` names the machine, and its start, whose clock the process reads."""

    kind: str
    host: str


class TreeSize(msgspec.Struct, frozen=True):
    """A tree's size: tokens of the sequence in front of it, guesses, and depth of the deepest guess."""

    session: int
    length: int
    nodes: int
    depth: int

    @classmethod
    def of(cls, session: int, length: int, parents: Sequence[int]) -> TreeSize:
        """The size of a tree whose nodes have these ``parents``, each before its children, -1 at the top."""
        depths: list[int] = []
        for parent in parents:
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return cls(session, length, len(parents), max(depths, default=0))


class SequenceStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step's result for one sequence.

    Attributes:
        length: tokens of the sequence before the step.
        decided: tokens that the step added.
        bought: guesses that the step verified, by drafter.
        accepted: guesses that the step accepted.
        trees: the parts of proposers' trees that agree with the sequence and continue it.
    """

    session: int
    request: str
    length: int
    decided: int
    bought: dict[str, int] = {}
    accepted: int = 0
    trees: list[TreeSize] = []


class Step(_Event, frozen=True, tag="step"):
    """A step of the target: its begin, its seconds, and those of them in which it waited for local drafters."""

    took: float
    waited: float
    rows: int
    prompt_rows: int
    sequences: list[SequenceStep]


class DraftRound(_Event, frozen=True, tag="pass"):
    """A round of a proposer's drafting: its begin, its seconds, and the trees that it made or improved."""

    took: float
    trees: list[TreeSize]


class TreeOffer(_Event, frozen=True, tag="taken"):
    """The offer of a tree that lacks the sequence's last ``behind`` tokens; ``kept`` if it agrees with them."""

    tree: TreeSize
    source: str
    behind: int
    kept: bool


class SessionLength(msgspec.Struct, frozen=True):
    """A session in a message, and the tokens of its sequence once the message is applied."""

    session: int
    length: int


class Message(_Event, frozen=True, tag="message"):
    """A message between a verifier and a proposer, ``heard`` by its receiver or else sent by its sender."""

    what: Literal["opens", "commits", "trees"]
    heard: bool
    told: list[SessionLength]


Event = ProcessStart | Step | DraftRound | TreeOffer | Message


class Timeline:
    """Appends events to a file, up to `MOST_BYTES` or until a write fails. For any thread: an event is one write."""

    def __init__(self, file: int, instance: str) -> None:
        self._file, self.instance = file, instance
        self._encode = msgspec.json.Encoder().encode
        self._left = MOST_BYTES

    def note(self, event: Event) -> None:
        """Writes an event; never fails, since steps call it."""
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

    def message(
        self, what: Literal["opens", "commits", "trees"], heard: bool, sessions: Sequence[tuple[int, int]]
    ) -> None:
        """Writes a message of ``sessions``, each with its length; writes nothing where there are none."""
        if sessions:
            self.note(Message(perf_counter(), self.instance, what, heard, [SessionLength(*each) for each in sessions]))


class _State:
    timeline: Timeline | None = None


def start_timeline(kind: str, instance: str, path: str) -> None:
    """Makes this process append its events to the file at ``path``; does nothing where ``path`` is empty.

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
    _State.timeline.note(ProcessStart(perf_counter(), instance, kind, _host()))


def timeline() -> Timeline | None:
    """The time line of this process; None where it writes none."""
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
    """A name of the machine since its start: all processes with one name share the clock of `perf_counter`."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return os.uname().nodename
