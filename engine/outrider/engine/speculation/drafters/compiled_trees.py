"""Trees of a draft model that runs on the compiled decoder, grown as long as that pays."""

from __future__ import annotations

from time import perf_counter

from outrider.engine.speculation.drafters.prices import FREE, DraftPrice, RunTime
from outrider.native.drafts import NativeDrafts
from outrider.native.trees import NativeTree


class CompiledTrees:
    """Chooses how often the model of ``drafts`` runs.

    Attributes:
        drafts: sessions and their trees.
    """

    def __init__(self, drafts: NativeDrafts) -> None:
        self.drafts, self._growing = drafts, RunTime()

    def draft(self, rounds: int, most: int, price: DraftPrice = FREE) -> list[NativeTree]:
        """Runs the model up to ``rounds`` times while runs pay; returns improved trees of at most ``most`` nodes.

        Runs over decided tokens always happen, since guesses follow those tokens.
        """
        while rounds > 0 and (planned := self.drafts.plan(price.guess)).rows:
            if planned.decided:
                self.drafts.run()
            elif planned.promised >= price.second * self._growing.seconds:
                began = perf_counter()
                self.drafts.run()
                self._growing.learn(perf_counter() - began)
            else:
                break
            rounds -= 1
        return self.drafts.trees(most)
