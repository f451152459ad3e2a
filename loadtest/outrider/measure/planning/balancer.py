"""The router by least load, in logarithmic time for any number of verifiers."""

from __future__ import annotations

import heapq
import random

from outrider.measure.planning.verifier import Verifier


class Balancer:
    """The verifiers that take requests, by their number of requests; equals are drawn at random."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._heap: list[tuple[int, float, int, Verifier]] = []
        self._valid: dict[Verifier, int] = {}
        self._number = 0

    def update(self, verifier: Verifier) -> None:
        """Adds ``verifier``, or notes its changed load; drops it if it drains or is dead."""
        if verifier.dead or verifier.draining:
            self._valid.pop(verifier, None)
            return
        self._number += 1
        self._valid[verifier] = self._number
        heapq.heappush(self._heap, (verifier.load, self._draw.random(), self._number, verifier))

    def least(self) -> Verifier | None:
        """The least loaded verifier; None without any."""
        while self._heap:
            _, _, number, verifier = self._heap[0]
            if self._valid.get(verifier) == number:
                return verifier
            heapq.heappop(self._heap)
        return None
