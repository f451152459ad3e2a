"""What a log of frames says of its request, without taking the request up."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from outrider.gateway.errors import Fatal
from outrider.gateway.streams.reassembly import Reassembly
from outrider.mesh.errors import Cancelled, Internal, InvalidRequest, OutriderError
from outrider.wire.frames import Finish, Frame


class Replay(msgspec.Struct):
    """Frames in order, without gap or repeat, and the ``failure`` that they end with, if any.

    ``given_up`` says that a verifier stopped behind them or that some are missing: they will not go on by themselves.
    """

    frames: list[Frame]
    failure: OutriderError | None = None
    given_up: bool = False


def replay(log: Iterable[Frame]) -> Replay:
    """What readers of a request without an echo have been told."""
    tokens, told = Reassembly(), Replay([])
    for frame in log:
        missing = not tokens.fits(frame)
        if frame.finish is Finish.CANCELLED and frame.error is None:
            told.given_up = True
        elif (frame.finish is Finish.CANCELLED or not missing) and (failure := failure_of(frame)) is not None:
            told.failure = failure
            break
        elif missing:
            told.given_up = True
        elif (fresh := tokens.take(frame)) is not None:
            told.frames.append(tokens.complete(fresh))
            told.given_up = False
            if fresh.finish is not None:
                break
    return told


def failure_of(frame: Frame) -> OutriderError | None:
    """What ``frame`` says that its request failed of, for whoever reads it; None where it does not."""
    if frame.finish is Finish.ERROR:
        return Internal() if frame.verifier else Fatal(frame.error or "the request was given up")
    if frame.finish is Finish.REFUSED:
        return InvalidRequest(frame.error or "the request's parameters leave no token to draw")
    return Cancelled(frame.error) if frame.finish is Finish.CANCELLED and frame.error is not None else None
