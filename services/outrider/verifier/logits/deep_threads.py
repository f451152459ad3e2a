"""Threads with a stack of a size of our own: llguidance recurses as deep as what it compiles."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

TRIED_BYTES = 64 << 20
"""Stack on which a definition is tried."""
STACK_BYTES = 2 * TRIED_BYTES
"""Stack of a thread that uses a definition which was tried. Only what is touched of it takes memory."""

_NICE = 5
_starting = threading.Lock()


@contextmanager
def deep_stacks(size: int = STACK_BYTES) -> Iterator[None]:
    """Gives threads that start in this block a stack of ``size`` bytes."""
    with _starting:
        before = threading.stack_size(size)
        try:
            yield
        finally:
            threading.stack_size(before)


def in_deep_thread(work: Callable[[], T], size: int = STACK_BYTES) -> Future[T]:
    """Runs ``work`` in a thread of its own, which yields to others of this process.

    `RuntimeError` where no thread can be started.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)  # Linux: this thread only
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    with deep_stacks(size):
        threading.Thread(target=run, name="grammars", daemon=True).start()
    return future
