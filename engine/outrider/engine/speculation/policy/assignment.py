"""Which local drafters guess for which sequences, in which version; versions change in mid-stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Seq

from outrider.engine.logs import get_logger
from outrider.engine.requests.sequence import Sequence
from outrider.engine.speculation import Opening, Traits
from outrider.engine.speculation.policy.counts import Counts
from outrider.engine.speculation.policy.drafter_policy import DrafterPolicy
from outrider.engine.speculation.policy.local_drafter import LocalDrafter
from outrider.engine.speculation.policy.probation import Group
from outrider.engine.speculation.policy.versions import Earned, Fall, Versions

_log = get_logger("speculation")


class Assignment:
    """The sequences that have not ended, and the drafters of each.

    Args:
        drafters: the local drafters.
        opening: how a drafter opens a sequence at its present end.
        policy: forgets the versions that are gone.
        counts: counts changes of versions.

    Attributes:
        local: the local drafters by name with version, those that steps wait for last.
        fallen: the versions that were given up for the ones before, and why, by drafter and tenant.
    """

    def __init__(
        self,
        drafters: Iterable[LocalDrafter],
        opening: Callable[[Sequence], Opening],
        policy: DrafterPolicy,
        counts: Counts,
    ) -> None:
        self._versions, self._opening, self._policy, self._counts = Versions(drafters), opening, policy, counts
        self.local: Mapping[str, LocalDrafter] = self._versions.loaded
        self.fallen = self._versions.fallen
        self._drafters: dict[int, list[LocalDrafter]] = {}
        self._sequences: dict[int, Sequence] = {}
        self._afar: Mapping[str, Traits] = {}

    def of(self, sequence: Sequence) -> Seq[LocalDrafter]:
        """The drafters that guess for a sequence."""
        return self._drafters.get(sequence.number, ())

    def judged(self, sequences: Iterable[Sequence]) -> Counter[tuple[str, str]]:
        """Numbers of ``sequences`` by drafter and tenant, for the drafters whose versions are compared."""
        if not any(drafter.judged for drafter in self.local.values()):
            return Counter()
        return Counter((d.name, s.request.tenant) for s in sequences for d in self.of(s) if d.judged)

    def open(self, sequence: Sequence) -> Opening:
        """Starts the local drafters for a sequence; returns the opening that remote drafters need."""
        opening = self._opening(sequence)
        self._sequences[sequence.number] = sequence
        self._assign(sequence, opening)
        return opening

    def close(self, sequence: Sequence) -> None:
        """Ends the sequence at its drafters."""
        if self._sequences.pop(sequence.number, None) is not None:
            self._versions.end_answer(sequence.request.tenant)
        for drafter in self._drafters.pop(sequence.number, ()):
            drafter.close(sequence)

    def at(self, group: Group) -> LocalDrafter | None:
        """The version that a group has; None for a tenant without one of its own."""
        return self._versions.at(group)

    def swap(self, group: Group, new: LocalDrafter | None, *, judged: bool) -> None:
        """See `Guessing.swap`."""
        new = new and self.local.get(new.name, new)
        before = self._versions.at(group)
        if new is before:
            self.fallen.pop(group, None)
            return
        self._versions.choose(group, new)
        try:
            self._assign_all()
        except Exception:
            self._versions.choose(group, before)
            self._assign_all()
            self.drop_unused()
            raise
        self._versions.begin(group, before, judged=judged and new is not None)
        self.drop_unused()
        name, tenant = group
        self._counts.changes[name, "changed"] += 1
        _log.info("a drafter was changed", drafter=name, tenant=tenant, now=new and new.name)

    def enter(self, size: int, earned: Iterable[Earned]) -> None:
        """Adds what drafters earned in a step of a size; goes back to versions that earned more."""
        falls = self._versions.enter(size, earned)
        for fall in falls:
            self._go_back(fall)
        if falls:
            self.drop_unused()

    def _go_back(self, fall: Fall) -> None:
        self._versions.go_back(fall)
        self._assign_all()
        name, tenant = fall.group
        given_up, now = self.fallen[fall.group][0], self._versions.at(fall.group)
        self._counts.changes[name, "rolled_back"] += 1
        _log.warning("a drafter was rolled back", drafter=given_up, tenant=tenant, now=now and now.name, why=fall.why)

    def drop_unused(self) -> None:
        """Lets go of versions that guess for nobody, and to which none goes back."""
        for name in self._versions.drop_unused():
            self._policy.forget(name)

    def forget(self, tenant: str) -> None:
        """Drops what local drafters keep of a tenant whose sequences have ended, and the tenant's own versions."""
        self._versions.forget(tenant)
        for drafter in self.local.values():
            drafter.forget(tenant)
        self.drop_unused()

    def _assign_all(self) -> None:
        for sequence in self._sequences.values():
            self._assign(sequence, self._opening(sequence))

    def _assign(self, sequence: Sequence, opening: Opening) -> None:
        """Gives a sequence the drafters that guess for it now: opens those that are new, closes all others."""
        number, request = sequence.number, sequence.request
        able = [d for d in self._versions.of(request.tenant) if request.prediction or not d.traits.predicted]
        wanted = [drafter for drafter in able if request.admits(drafter.name)]
        held = self._drafters.get(number, [])
        self._drafters[number] = wanted
        for drafter in held:
            if drafter not in wanted:
                drafter.close(sequence)
                sequence.trees.pop(drafter.source, None)
        for drafter in wanted:
            if drafter not in held:
                drafter.open(number, opening)
        self._note_whole(sequence)

    def seen_by(self, remote: Mapping[str, Traits], sequences: Iterable[Sequence]) -> None:
        """Notes which ``remote`` drafters need states, by name; ``sequences`` are all that have not ended."""
        self._afar = remote
        for sequence in sequences:
            self._note_whole(sequence)

    def sees_afar(self, sequence: Sequence) -> bool:
        """Whether remote drafters need the states of a sequence."""
        return any(sequence.request.admits(name) for name in self._afar)

    def _note_whole(self, sequence: Sequence) -> None:
        request = sequence.request
        decodes = request.max_tokens > 1 and not request.prefill_only
        local = (drafter.traits for drafter in self.of(sequence))
        afar = (traits for name, traits in self._afar.items() if request.admits(name))
        sequence.whole = decodes and any(traits.whole and traits.layers for traits in (*local, *afar))

    def layers(self, sequences: Seq[Sequence]) -> tuple[int, ...]:
        """The target's states that drafters of ``sequences`` need, ascending."""
        seeing = [drafter for drafter in self.local.values() if drafter.traits.layers]
        if not (seeing or self._afar):
            return ()
        needed = [d.traits.layers for d in seeing if any(s.number in d.sequences for s in sequences)]
        afar = self._afar.items()
        needed += [traits.layers for name, traits in afar if any(s.request.admits(name) for s in sequences)]
        return tuple(sorted({layer for layers in needed for layer in layers}))
