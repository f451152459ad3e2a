"""The phases of a stream: where its frames come from, and whether its verifier is lost."""

from __future__ import annotations

from enum import Enum, auto


class Phase(Enum):
    """Where the frames of a stream come from. The broker is read in every phase but `ENDED`."""

    UNPLACED = auto()
    """From the broker; no verifier is known to have the job."""
    BROKER = auto()
    """From the broker alone; a verifier has the job."""
    BOTH = auto()
    """From the broker and from the verifier itself: a follower runs in this phase and in no other."""
    LOST = auto()
    """From the broker; the verifier is lost, and the reader asks for another one before it waits again."""
    MOVING = auto()
    """From the broker; another verifier is looked for, and what is said of the old one no longer matters."""
    ENDED = auto()
    """From nowhere: the answer is whole, failed, or nobody reads it."""


class Event(Enum):
    """What happens to a stream."""

    PLACED = auto()
    """A verifier has the job."""
    FOLLOW = auto()
    """Frames from the broker may be missing: it is away, lost a frame, or is silent."""
    CAUGHT_UP = auto()
    """The broker brought a frame that the verifier itself had not brought before."""
    LOSS = auto()
    """The verifier is gone, gave the job up, or its own frames ended before the answer did."""
    MOVE = auto()
    """The reader begins to look for another verifier, or does so again after it was interrupted."""
    END = auto()
    """The answer has ended, for this reader."""


TRANSITIONS = {
    (Phase.UNPLACED, Event.PLACED): Phase.BROKER,
    (Phase.UNPLACED, Event.LOSS): Phase.LOST,
    (Phase.BROKER, Event.FOLLOW): Phase.BOTH,
    (Phase.BROKER, Event.LOSS): Phase.LOST,
    (Phase.BOTH, Event.CAUGHT_UP): Phase.BROKER,
    (Phase.BOTH, Event.LOSS): Phase.LOST,
    (Phase.LOST, Event.MOVE): Phase.MOVING,
    (Phase.MOVING, Event.PLACED): Phase.BROKER,
} | {(phase, Event.END): Phase.ENDED for phase in Phase}
"""All transitions. An event changes nothing in a phase that is not listed with it."""
