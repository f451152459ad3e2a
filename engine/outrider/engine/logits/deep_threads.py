"""Threads with a stack of a chosen size: llguidance recurses as deeply as the grammar it compiles."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from outrider.engine.worker import lower_priority

T = TypeVar("T")

TRIED_BYTES = 64 << 20
"""Stack of a thread that tries a definition, in bytes."""
STACK_BYTES = 2 * TRIED_BYTES
"""Stack of a thread that uses a tried definition, in bytes. Only the touched part takes memory."""

_starting = threading.Lock()


@contextmanager
def deep_stacks(size: int = STACK_BYTES) -> Iterator[None]:
    """Sets the stack of threads started in this block to ``size`` bytes."""
    with _starting:
        before = threading.stack_size(size)
        try:
            yield
        finally:
            threading.stack_size(before)


def in_deep_thread(work: Callable[[], T], size: int = STACK_BYTES) -> Future[T]:
    """Runs ``work`` in a new thread of lower priority; `RuntimeError` if no thread can be started."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            lower_priority()
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    with deep_stacks(size):
        threading.Thread(target=run, name="grammars", daemon=True).start()
    return future
