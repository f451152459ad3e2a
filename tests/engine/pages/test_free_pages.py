"""Free pages are those that a plain set of them would give."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from outrider.engine.pages.free_pages import FreePages

_PAGES = 24


def gaps(free: set[int]) -> list[range]:
    """The runs of consecutive pages of a set, in order."""
    starts = [page for page in sorted(free) if page - 1 not in free]
    return [range(start, next(page for page in range(start, _PAGES + 1) if page not in free)) for start in starts]


class Gaps(RuleBasedStateMachine):
    """Pages that are taken from gaps and come back in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.pages, self.free = FreePages(_PAGES), set(range(_PAGES))

    @precondition(lambda self: self.free)
    @rule(choice=st.integers(0, 99))
    def take(self, choice: int) -> None:
        starts = [gap[0] for gap in gaps(self.free)]
        page = starts[choice % len(starts)]
        self.pages.take(page)
        self.free.remove(page)

    @precondition(lambda self: len(self.free) < _PAGES)
    @rule(choice=st.integers(0, 99))
    def add(self, choice: int) -> None:
        used = sorted(set(range(_PAGES)) - self.free)
        self.pages.add(used[choice % len(used)])
        self.free.add(used[choice % len(used)])

    @precondition(lambda self: self.free)
    @rule()
    def the_lowest_and_the_longest_are_found(self) -> None:
        found = gaps(self.free)
        assert self.pages.lowest() == min(self.free)
        assert self.pages.longest() == max(found, key=len)[0]

    @invariant()
    def gaps_are_those_of_the_set(self) -> None:
        starts = {gap[0] for gap in gaps(self.free)}
        assert len(self.pages) == len(self.free)
        assert {page for page in range(_PAGES) if self.pages.starts_at(page)} == starts


TestGaps = Gaps.TestCase
TestGaps.settings = settings(max_examples=60, stateful_step_count=120, deadline=None)
