"""Judges a drafter's new version by the share of time that it earns, against the version before.

A share is the seconds that guesses brought, less those that steps waited, over the seconds of the steps: a drafter that
earns the share s makes tokens 1 + s times as fast as without it. Steps that leave a paused drafter out count too: they
earn nothing. Shares of steps of different sizes are not compared.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean, variance

Group = tuple[str, str | None]
"""A drafter's name and the tenant whose sequences count; None for all sequences that have the model's version."""

# A block has 32 steps and more, and the end of an answer: a long answer is one observation, since its steps are alike.
# The new version is judged after 8, 16 and 32 blocks. What differs between answers makes blocks differ: the fall has to
# exceed 6 standard errors: of 40,000 simulated changes between equal versions on mixed texts, 4 counted as worse.
_BLOCK_STEPS, LOOKS, _STANDARD_ERRORS = 32, (8, 16, 32), 6.0
LEAST_FALL = 0.05
"""Share by which tokens a second fall at least before a version is given up."""
_MOST_GROUPS = 1024


@dataclass(slots=True)
class _Stretch:
    """What a version earned in steps of one size, in blocks; the block that is open began after ``ended`` answers."""

    shares: deque[float] = field(default_factory=lambda: deque(maxlen=LOOKS[-1]))
    earned: float = 0.0
    time: float = 0.0
    steps: int = 0
    ended: int = 0

    def enter(self, earned: float, time: float, ended: int) -> bool:
        """Adds a step; whether it closes a block."""
        self.earned, self.time, self.steps = self.earned + earned, self.time + time, self.steps + 1
        if self.steps < _BLOCK_STEPS or ended == self.ended:
            return False
        self.shares.append(self.earned / self.time)
        self.earned, self.time, self.steps, self.ended = 0.0, 0.0, 0, ended
        return True


class Probation:
    """Keeps the shares of all groups, and compares those of new versions with the ones before."""

    def __init__(self) -> None:
        self._stretches: dict[Group, dict[int, _Stretch]] = {}
        self._before: dict[Group, dict[int, list[float]]] = {}
        self._ended: Counter[str | None] = Counter()

    def begin(self, group: Group, *, judged: bool) -> None:
        """A new version begins; with ``judged``, it is compared with the one before, if that was there for long."""
        stretches = self._stretches.pop(group, {}).items()
        before = {size: list(stretch.shares) for size, stretch in stretches if len(stretch.shares) >= LOOKS[0]}
        self._before.pop(group, None)
        if judged and before:
            self._before[group] = before

    def clear_followers(self, drafter: str, own: Set[str | None]) -> None:
        """Drops the shares of all tenants that have the model's version, which changed: all but those in ``own``."""
        for group in [(name, tenant) for name, tenant in self._stretches if name == drafter and tenant not in own]:
            del self._stretches[group]

    def on_trial(self, group: Group) -> bool:
        """Whether the group's version is being compared."""
        return group in self._before

    def enter(self, group: Group, size: int, earned: float, time: float) -> str | None:
        """Adds a step of a size; why the new version is worse than the one before, None where it is not."""
        stretches = self._stretches.pop(group, None)
        if stretches is None:
            stretches = {}
            if len(self._stretches) >= _MOST_GROUPS:
                del self._stretches[next(iter(self._stretches))]
        self._stretches[group] = stretches  # the latest last
        ended = self._ended[group[1]]
        stretch = stretches.get(size)
        if stretch is None:
            stretch = stretches[size] = _Stretch(ended=ended)
        if not stretch.enter(earned, time, ended) or size not in self._before.get(group, ()):
            return None
        return self._look(group, self._before[group][size], list(stretch.shares))

    def _look(self, group: Group, before: Sequence[float], after: Sequence[float]) -> str | None:
        if len(after) not in LOOKS:
            return None
        fall = fallen(before[-len(after) :], after)
        if fall is not None or len(after) == LOOKS[-1]:
            del self._before[group]
        return fall

    def end_answer(self, tenant: str) -> None:
        """Notes the end of an answer."""
        self._ended[tenant] += 1
        self._ended[None] += 1

    def forget(self, tenant: str) -> None:
        """Drops what is kept of a tenant."""
        self._ended.pop(tenant, None)
        for kept in (self._stretches, self._before):
            for group in [group for group in kept if group[1] == tenant]:
                del kept[group]


def fallen(before: Sequence[float], after: Sequence[float]) -> str | None:
    """Says how far tokens a second fell between two stretches of shares; None if not clearly, or by too little."""
    was, now = fmean(before), fmean(after)
    noise = sqrt(variance(before) / len(before) + variance(after) / len(after))
    if 1 + now >= (1 - LEAST_FALL) * (1 + was) or was - now <= _STANDARD_ERRORS * noise:
        return None
    return f"tokens a second fell by {1 - (1 + now) / (1 + was):.0%}: it earns {now:.0%} of the time, not {was:.0%}"
