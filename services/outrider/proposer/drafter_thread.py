"""The drafter's own thread: takes sessions, drafts ahead, and delivers trees."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from outrider.engine.speculation import Drafter, DraftTree
from outrider.engine.worker import Inbox, Worker
from outrider.mesh.telemetry import counter, distributions

T = TypeVar("T")

_HIDDEN = counter("spec_hidden_drafting_seconds", "Time of drafting that no step waits for.", ["drafter"])
_DRAFTED = counter(
    "spec_proposed_tokens", "Guesses in all trees; a tree that replaces another counts again.", ["drafter"]
)
_ROUND = distributions("proposer_round_seconds", "Time of a round of drafting over all sequences.", ["drafter"])


class DrafterThread(Worker):
    """Drafts as long as the drafter has something to do.

    Args:
        drafter: the drafter; only this thread touches it once started.
        deliver: called in this thread with the trees of one round.
        failed: called in this thread with the error that ended the thread.
        drafted: called in this thread after each round with its start, its seconds and its trees.
    """

    def __init__(
        self,
        drafter: Drafter,
        deliver: Callable[[list[tuple[int, DraftTree]]], None],
        failed: Callable[[BaseException], None],
        drafted: Callable[[float, float, list[tuple[int, DraftTree]]], None] = lambda began, took, trees: None,
    ) -> None:
        super().__init__("drafter", Inbox(), failed)
        self._drafter, self._deliver, self._drafted = drafter, deliver, drafted

    def post(self, action: Callable[[Drafter], None]) -> None:
        """Runs ``action`` in the drafter's thread before its next round."""
        self._inbox.post(lambda: action(self._drafter))

    def call(self, action: Callable[[Drafter], T]) -> Future[T]:
        """As `post`, with a future for the result."""
        return self._inbox.call(lambda: action(self._drafter))

    def turn(self) -> bool:
        """Runs one round of drafting; whether the drafter made trees or still reads a prompt."""
        if trees := self._draft():
            self._deliver(trees)
        return bool(trees) or self._drafter.reading

    def _draft(self) -> list[tuple[int, DraftTree]]:
        began = time.perf_counter()
        trees = self._drafter.draft()
        took = time.perf_counter() - began
        _ROUND.labels(self._drafter.name).observe(took)
        _HIDDEN.labels(self._drafter.name).inc(took)
        _DRAFTED.labels(self._drafter.name).inc(sum(len(tree.tokens) for _, tree in trees))
        self._drafted(began, took, trees)
        return trees
