"""Reads the log of an answer without taking the answer up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from outrider.gateway.errors import FatalRequest
from outrider.gateway.stream.reassembly import Reassembly, split
from outrider.mesh.errors import Cancelled, Internal, InvalidRequest, OutriderError
from outrider.wire.frames import Finish, Frame


class Replay(msgspec.Struct):
    """The logged frames in order, without gap or repeat, and the ``failure`` at their end, if there is one.

    ``given_up`` says that nothing will follow unless a gateway takes the answer up: a verifier stopped after these
    frames, or frames are missing.
    """

    frames: list[Frame]
    failure: OutriderError | None = None
    given_up: bool = False


def replay(log: Iterable[Frame]) -> Replay:
    """What readers of the answer have received. The answer must not echo its prompt."""
    order, result = Reassembly(), Replay([])
    for frame in log:
        missing = not order.fits(frame)
        if frame.finish is Finish.CANCELLED and frame.error is None:
            result.given_up = True
        elif (frame.finish is Finish.CANCELLED or not missing) and (failure := failure_of(frame)) is not None:
            result.failure = failure
            break
        elif missing:
            result.given_up = True
        elif (fresh := order.take(frame)) is not None:
            result.frames.append(order.complete(fresh))
            result.given_up = False
            if fresh.finish is not None:
                break
    return result


def failure_of(frame: Frame) -> OutriderError | None:
    """The error that ``frame`` reports to all readers of the answer, or None."""
    if frame.finish is Finish.ERROR:
        return Internal() if frame.verifier else FatalRequest(frame.error or "the request was given up")
    if frame.finish is Finish.REFUSED:
        return InvalidRequest(frame.error or "the request's parameters leave no token to draw")
    return Cancelled(frame.error) if frame.finish is Finish.CANCELLED and frame.error is not None else None


def until_filtered(log: Sequence[Frame]) -> list[Frame]:
    """``log`` without the tokens behind the place where a filter ended the answer, if one did."""
    end = next((frame for frame in log if frame.finish is Finish.FILTERED), None)
    if end is None:
        return list(log)
    before = [frame for frame in log if frame.first_index < end.first_index and frame.finish is not Finish.CANCELLED]
    return [*(split(frame, end.first_index - frame.first_index)[0] for frame in before), end]
