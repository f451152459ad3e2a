"""The interface of the stream from which a flight reads one answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Protocol

from outrider.gateway.routing.job import Job
from outrider.mesh.errors import OutriderError
from outrider.mesh.registry import Member
from outrider.wire.frames import Frame

OnPlaced = Callable[[], None]
"""Is called each time that a verifier has taken a job, or the answer comes from elsewhere."""


def ignore_placement() -> None:
    """An `OnPlaced` that does nothing."""


class AnswerStream(Protocol):
    """The frames of the answer to one ``job``, which may be generated for it alone, shared with other jobs, or cached.

    Attributes:
        on_placed: is set before `open`; `close` forgets it.
        spent: tokens generated so far.
        finished: whether the last frame has been read.
        failed: the error that ended the stream.
        expired_unstarted: whether the deadline passed before a verifier computed anything.
    """

    job: Job
    on_placed: OnPlaced
    spent: int
    finished: bool
    failed: OutriderError | None
    expired_unstarted: bool

    @property
    def placed(self) -> bool:
        """Whether a verifier has taken the job, or the answer comes from elsewhere."""
        ...

    @property
    def verifier(self) -> str:
        """Instance of the verifier that generates the answer; empty if there is none."""
        ...

    @property
    def holder(self) -> str:
        """Instance of the verifier that has the job under the job's own id; empty if there is none."""
        ...

    @property
    def lease(self) -> tuple[str, Member] | None:
        """The request id to renew, and its verifier; None if nothing has to be renewed."""
        ...

    async def open(self) -> None:
        """Submits the job. `close` has to be called even if this fails.

        Raises `InvalidRequest`, `Overloaded`, `Unavailable` or `DeadlineUnmeetable` if no verifier takes the job.
        """
        ...

    def frames(self) -> AsyncGenerator[list[Frame], None]:
        """Frames without gap or repeat up to the one with ``finish``; frames that are ready together come together.

        Raises `Unavailable` if no verifier goes on with the answer, `Internal` if the verifier failed, `FatalRequest`
        if too many verifiers died, `Cancelled` if the stream was ended for all its readers, and `DeadlinePassed`.
        """
        ...

    async def close(self, *, cancel: bool = True) -> None:
        """Releases the stream; with ``cancel`` its verifiers drop an unfinished job at once."""
        ...

    def follow(self, reason: str) -> None:
        """Reads from the verifier itself, beside the broker; ``reason`` labels the metric."""
        ...
