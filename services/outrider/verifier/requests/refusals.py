"""Turns the engine's refusals of a request into errors for callers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from outrider.engine.scheduling.estimate import TooLate
from outrider.engine.scheduling.scheduler import NeverFits, QueueFull
from outrider.mesh.errors import DeadlineUnmeetable, InvalidRequest, Overloaded

T = TypeVar("T")


async def queued(call: Future[T], wait_s: Callable[[], float | None] = lambda: None) -> T:
    """The result of submitting a request to the engine.

    Raises:
        DeadlineUnmeetable: the request would miss its deadline.
        Overloaded: the queue is full; a request at its end would wait for about ``wait_s`` seconds.
        InvalidRequest: the request needs more pages than the verifier has.
    """
    try:
        return await asyncio.wrap_future(call)
    except TooLate as error:
        raise _unmeetable(error) from None
    except QueueFull:
        raise Overloaded("the queue is full", retry_after=wait_s()) from None
    except NeverFits as error:
        raise InvalidRequest(f"max_tokens: {error}", param="max_tokens") from None


def _unmeetable(error: TooLate) -> DeadlineUnmeetable:
    when = "with other requests before it" if error.retry_s is not None else "with nothing else to do"
    what = "the first token" if error.param == "ttft_ms" else "the answer"
    why = f"{error.param}: {what} would take about {error.seconds * 1e3:.0f} ms {when}"
    return DeadlineUnmeetable(why, param=error.param, retry_after=error.retry_s)
