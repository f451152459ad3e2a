"""The drafter's own thread: sessions come in, trees go out, and in between it drafts ahead."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from outrider.mesh.telemetry import counter
from outrider.models.speculation import Drafter, DraftTree, ReadingDrafter

_HIDDEN = counter("spec_hidden_drafting_seconds", "Time of drafting that no step waits for.", ["drafter"])
_DRAFTED = counter(
    "spec_proposed_tokens", "Guesses in the trees that were made, again in each that improves on one.", ["drafter"]
)


class DrafterThread(threading.Thread):
    """Drafts for as long as the drafter finds something to do; sleeps otherwise.

    Args:
        drafter: touched by this thread only, once started.
        deliver: called in this thread with the trees of one round.
        failed: called in this thread with the error that ended it.
        drafted: called in this thread after each round with when it began, the seconds it took, and its trees.
    """

    def __init__(
        self,
        drafter: Drafter,
        deliver: Callable[[list[tuple[int, DraftTree]]], None],
        failed: Callable[[BaseException], None],
        drafted: Callable[[float, float, list[tuple[int, DraftTree]]], None] = lambda began, took, trees: None,
    ) -> None:
        super().__init__(name="drafter", daemon=True)
        self._drafter, self._deliver, self._failed, self._drafted = drafter, deliver, failed, drafted
        self._inbox: deque[Callable[[Drafter], None]] = deque()
        self._wake = threading.Event()
        self._stopping = False

    def post(self, action: Callable[[Drafter], None]) -> None:
        """Has ``action`` run in the drafter's thread before its next round."""
        self._inbox.append(action)
        self._wake.set()

    def stop(self) -> None:
        """Ends the thread after the round it is in."""
        self._stopping = True
        self._wake.set()

    @property
    def _reading(self) -> bool:
        return isinstance(self._drafter, ReadingDrafter) and self._drafter.reading

    def _draft(self) -> list[tuple[int, DraftTree]]:
        began = time.perf_counter()
        trees = self._drafter.draft()
        took = time.perf_counter() - began
        _HIDDEN.labels(self._drafter.name).inc(took)
        _DRAFTED.labels(self._drafter.name).inc(sum(len(tree.tokens) for _, tree in trees))
        self._drafted(began, took, trees)
        return trees

    def run(self) -> None:
        """The thread's body."""
        try:
            while not self._stopping:
                self._wake.clear()
                while self._inbox:
                    self._inbox.popleft()(self._drafter)
                trees = self._draft()
                if trees:
                    self._deliver(trees)
                elif not self._inbox and not self._reading:
                    self._wake.wait()
        except BaseException as error:
            self._failed(error)
