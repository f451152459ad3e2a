"""Cores that a verifier leaves to proposers of its machine, for as long as one works for it."""

from __future__ import annotations

from collections.abc import Callable

from outrider.mesh.telemetry import gauge
from outrider.models.crew import Crew
from outrider.models.llama import LlamaModel

_THREADS = gauge("verifier_threads", "CPU threads that run a forward pass.")


class Cores:
    """Says on how many threads steps run.

    Args:
        model: the target.
        beside: threads while a proposer works; 0 for no change.
        post: has a function called between steps by the thread that runs them.
    """

    def __init__(self, model: LlamaModel, beside: int, post: Callable[[Callable[[], None]], None]) -> None:
        self._crew, self._beside, self._post = Crew(model), beside, post
        self._all = self._crew.threads
        _THREADS.set(self._all)

    def share(self, working: bool) -> None:
        """Takes note of whether a proposer guesses for a sequence."""
        threads = self._beside if working and self._beside else self._all
        self._post(lambda: self._use(threads))

    def _use(self, threads: int) -> None:
        self._crew.use(threads)
        _THREADS.set(self._crew.threads)
