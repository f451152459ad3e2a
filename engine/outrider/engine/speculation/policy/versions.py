"""The versions of local drafters: which one guesses for whom, and the return to the one before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from outrider.engine.speculation.policy.local_drafter import LocalDrafter
from outrider.engine.speculation.policy.probation import Group, Probation


class Earned(NamedTuple):
    """What a local drafter earned in a step for the sequences of one tenant.

    Attributes:
        drafter: name of the drafter, with its version.
        tenant: whose sequences they are.
        seconds: seconds that its guesses brought, less those that the step waited.
        time: the sequences' part of the step's seconds.
    """

    drafter: str
    tenant: str
    seconds: float
    time: float


class Fall(NamedTuple):
    """A version that is worse than the one before, and ``why``."""

    group: Group
    why: str


class Versions:
    """Which version of each local drafter guesses for whom: a tenant's own, or else the model's.

    Attributes:
        loaded: the drafters that guess, or may guess again, by name with version; those that steps wait for are last.
        fallen: versions that were given up, and why, by the group that had them last.
    """

    def __init__(self, drafters: Iterable[LocalDrafter]) -> None:
        self.loaded: dict[str, LocalDrafter] = {}
        self.fallen: dict[Group, tuple[str, str]] = {}
        self._chosen: dict[Group, LocalDrafter] = {}
        self._before: dict[Group, LocalDrafter | None] = {}
        self._probation = Probation()
        for drafter in drafters:
            self.choose((drafter.plugin, None), drafter)

    def of(self, tenant: str) -> list[LocalDrafter]:
        """The drafters that guess for a tenant."""
        return [drafter for drafter in self.loaded.values() if self._for(drafter.plugin, tenant) is drafter]

    def at(self, group: Group) -> LocalDrafter | None:
        """The version that was chosen for a group; None without one: a tenant then has the model's."""
        return self._chosen.get(group)

    def _for(self, name: str, tenant: str | None) -> LocalDrafter | None:
        return self._chosen.get((name, tenant)) or self._chosen.get((name, None))

    def choose(self, group: Group, drafter: LocalDrafter | None) -> None:
        """Has ``drafter`` guess for a group; None ends a tenant's own version, or the use of the drafter."""
        if drafter is None:
            self._chosen.pop(group, None)
            return
        self._chosen[group] = drafter
        ordered = {**self.loaded, drafter.name: drafter}.values()
        self.loaded.clear()
        self.loaded.update((each.name, each) for each in sorted(ordered, key=attrgetter("traits.slow")))

    def begin(self, group: Group, before: LocalDrafter | None, *, judged: bool) -> None:
        """A version was chosen in place of ``before``, to which it may go back if it is ``judged``."""
        name, tenant = group
        self.fallen.pop(group, None)
        there = before or (None if tenant is None else self._chosen.get((name, None)))
        judged = judged and there is not None and self._for(name, tenant) is not None
        self._before.pop(group, None)
        if judged:
            self._before[group] = before
        self._probation.begin(group, judged=judged)
        if tenant is None:
            self._probation.clear_followers(name, {own for plugin, own in self._chosen if plugin == name} | {None})

    def drop_unused(self) -> list[str]:
        """Lets go of the versions that guess for nobody and to which none may go back; returns their names."""
        self._before = {group: drafter for group, drafter in self._before.items() if self._probation.on_trial(group)}
        used = {*self._chosen.values(), *self._before.values()}
        unused = [name for name, drafter in self.loaded.items() if drafter not in used]
        for name in unused:
            del self.loaded[name]
        return unused

    def enter(self, size: int, earned: Iterable[Earned]) -> list[Fall]:
        """Adds what drafters earned in a step of a size; returns the groups whose versions are worse than before."""
        sums: defaultdict[Group, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for name, tenant, seconds, time in earned:
            plugin = self.loaded[name].plugin
            own = plugin, tenant
            for group in (own,) if own in self._chosen else (own, (plugin, None)):
                total = sums[group]
                total[0] += seconds
                total[1] += time
        falls = [(group, self._probation.enter(group, size, *total)) for group, total in sums.items()]
        return [Fall(group, why) for group, why in falls if why is not None]

    def go_back(self, fall: Fall) -> None:
        """Chooses the version before again, for good; a tenant's first own version gives way to the model's."""
        group, given_up = fall.group, self._chosen[fall.group]
        before = self._before[group]
        self.choose(group, before)
        self.begin(group, given_up, judged=False)
        self.fallen[group] = given_up.name, fall.why

    def end_answer(self, tenant: str) -> None:
        """Notes the end of an answer."""
        self._probation.end_answer(tenant)

    def forget(self, tenant: str) -> None:
        """Drops what is kept of a tenant, and its own versions."""
        for group in [group for group in (*self._chosen, *self.fallen) if group[1] == tenant]:
            self._chosen.pop(group, None)
            self.fallen.pop(group, None)
        self._probation.forget(tenant)
