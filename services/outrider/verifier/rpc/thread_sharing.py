"""Leaves cores to a proposer on the same machine while it guesses."""

from __future__ import annotations

from collections.abc import Callable

from outrider.engine.models.llama import LlamaModel
from outrider.engine.models.step_threads import StepThreads
from outrider.mesh.telemetry import gauge

_THREADS = gauge("verifier_threads", "CPU threads that run a forward pass.")


class ThreadSharing:
    """Sets the number of CPU threads of a step.

    Args:
        model: the target.
        threads_beside: number of threads while a proposer guesses; 0 for no change.
        post: runs a function in the engine's thread, between steps.
    """

    def __init__(self, model: LlamaModel, threads_beside: int, post: Callable[[Callable[[], None]], None]) -> None:
        self._threads, self._threads_beside, self._post = StepThreads(model), threads_beside, post
        self._all_threads = self._threads.threads
        _THREADS.set(self._all_threads)

    def share(self, working: bool) -> None:
        """Sets the threads for steps while a proposer guesses (``working``) or not."""
        threads = self._threads_beside if working and self._threads_beside else self._all_threads
        self._post(lambda: self._use(threads))

    def _use(self, threads: int) -> None:
        self._threads.set(threads)
        _THREADS.set(self._threads.threads)
