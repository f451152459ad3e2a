"""The engine's guesses: local drafters, trees of remote drafters, and the guesses that each step verifies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from time import perf_counter

from outrider.engine.requests.sequence import Sequence
from outrider.engine.scheduling.cost_curve import CostCurve
from outrider.engine.scheduling.plan import Plan
from outrider.engine.scheduling.scheduler import Scheduler
from outrider.engine.speculation import Acceptance, Drafter, DraftTree, MergedTree, Opening, Traits
from outrider.engine.speculation.acceptance.accept import AcceptedPath
from outrider.engine.speculation.drafters.states import States
from outrider.engine.speculation.policy.accounting import Accounting
from outrider.engine.speculation.policy.assignment import Assignment
from outrider.engine.speculation.policy.counts import Counts
from outrider.engine.speculation.policy.drafter_policy import DrafterPolicy
from outrider.engine.speculation.policy.guess_buyer import GuessBuyer
from outrider.engine.speculation.policy.local_drafter import LocalDrafter
from outrider.engine.speculation.policy.probation import Group
from outrider.engine.speculation.policy.remote_drafters import RemoteDrafters
from outrider.engine.speculation.policy.sequence_choice import StepForecast
from outrider.engine.speculation.trees.price import StepCosts
from outrider.engine.speculation.trees.tree import MOST_NODES
from outrider.engine.telemetry import NoTelemetry, Telemetry


@dataclass(frozen=True, slots=True)
class TargetView:
    """The target as speculation sees it.

    Attributes:
        rule: rule of acceptance.
        vocabulary: number of the target's ids.
    """

    rule: Acceptance
    vocabulary: int


class Guessing:
    """Takes in trees, gives out guesses to verify, and learns from the target's decisions. For the engine's thread.

    Args:
        target: the target that verifies the guesses.
        scheduler: limits guesses and holds pages for them.
        cost: seconds of a step by rows.
        drafters: the local drafters.
        policy: decides which drafters are asked.
        clock: seconds, to measure how long steps wait for drafters.
        telemetry: gets the offers of remote drafters.

    Attributes:
        paused: names of the paused drafters.
        waited: seconds for which the last step waited for local drafters.
    """

    def __init__(
        self,
        target: TargetView,
        scheduler: Scheduler,
        cost: CostCurve,
        drafters: Seq[Drafter],
        policy: DrafterPolicy,
        clock: Callable[[], float] = perf_counter,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._telemetry = telemetry or NoTelemetry()
        self._target, self._scheduler, self._cost, self._policy, self._clock = target, scheduler, cost, policy, clock
        counts = Counts()
        self._assignment = Assignment(map(self._new_local, drafters), self._opening, policy, counts)
        self._local = self._assignment.local
        self._remote = RemoteDrafters(clock)
        self._buyer = GuessBuyer(target.rule, scheduler, cost, self._usual_wait)
        self._accounting = Accounting(cost, policy, self._local, counts)
        self._size, self.waited = 0, 0.0
        self.paused: frozenset[str] = frozenset()

    @property
    def counts(self) -> Counts:
        """Counters of guesses since start."""
        return self._accounting.counts

    @property
    def fallen(self) -> Mapping[Group, tuple[str, str]]:
        """The versions that were given up for the ones before, and why, by drafter and tenant."""
        return self._assignment.fallen

    def runs(self, name: str, tenant: str | None) -> str | None:
        """The drafter ``name`` of a tenant, or of all that have no version of their own, with its version."""
        drafter = self._assignment.at((name, tenant))
        return None if drafter is None else drafter.name

    def swap(self, name: str, drafter: Drafter | None, tenant: str | None, version: str, judged: bool = True) -> None:
        """Has another version of a local drafter guess for a tenant, or for all that have no version of their own.

        Running sequences go on with it from their present end. An error of the new drafter leaves all as it was.

        Args:
            name: of the drafter.
            drafter: the new version; None ends a tenant's own, or the use of the drafter.
            tenant: whose sequences it guesses for; None for all that have no version of their own.
            version: its name. A version of this name that is still loaded is used in place of ``drafter``.
            judged: whether it is given up where it earns less than the one before
                (`outrider.engine.speculation.policy.probation`).
        """
        if drafter is not None:
            drafter.name = f"{name}@{version}" if version else name
        self._assignment.swap((name, tenant), None if drafter is None else self._new_local(drafter), judged=judged)

    def _new_local(self, drafter: Drafter) -> LocalDrafter:
        return LocalDrafter(drafter, self._policy.sequence_choice())

    @property
    def lost(self) -> frozenset[str]:
        """Names of the local drafters that say of themselves that they guess no better than chance."""
        return frozenset(name for name, drafter in self._assignment.local.items() if drafter.lost)

    def open(self, sequence: Sequence) -> Opening:
        """Starts the local drafters for a sequence; returns the opening that remote drafters need."""
        return self._assignment.open(sequence)

    def _opening(self, sequence: Sequence) -> Opening:
        request = sequence.request
        most = min(2 * (request.speculation.max_nodes or self._scheduler.limits.guesses_each), MOST_NODES)
        tokens, proposes = list(sequence.tokens), self._buyer.needs_proposals(sequence)
        replacement = proposes and self._target.rule.replacement
        prompt, predicted = len(request.prompt), request.prediction
        private = request.speculation.private
        return Opening(
            tokens, request.sampling, most, request.tenant, prompt, proposes, replacement, predicted, private
        )

    def seen_by(self, remote: Mapping[str, Traits], sequences: Iterable[Sequence]) -> None:
        """Notes which ``remote`` drafters need states, by name; ``sequences`` are all that have not ended."""
        self._assignment.seen_by(remote, sequences)

    def layers(self, sequences: Seq[Sequence]) -> tuple[int, ...]:
        """The target's states that drafters of ``sequences`` need, ascending."""
        return self._assignment.layers(sequences)

    def follow(self, sequence: Sequence, length: int, tokens: list[int]) -> None:
        """Passes ``tokens``, decided after ``length`` others, to the local drafters.

        Trees are cut only when guesses are bought: most are replaced before that.
        """
        for drafter in self._assignment.of(sequence):
            drafter.follow(sequence.number, length, tokens)

    def see(self, sequence: Sequence, start: int, states: States) -> bool:
        """Passes ``states`` of tokens from ``start`` on to the local drafters; whether remote ones need them too."""
        for drafter in self._assignment.of(sequence):
            drafter.see(sequence.number, start, states)
        return self._assignment.sees_afar(sequence)

    def close(self, sequence: Sequence) -> None:
        """Ends the sequence at its local drafters."""
        self._assignment.close(sequence)

    def forget(self, tenant: str) -> None:
        """Drops what local drafters keep of a tenant whose sequences have ended, and the tenant's own versions."""
        self._assignment.forget(tenant)

    def expire(self) -> None:
        """Has local drafters forget tenants that had no sequence since the last call; drops unused versions."""
        self._assignment.drop_unused()
        for drafter in self._local.values():
            drafter.expire()

    def offer(self, sequence: Sequence, tree: DraftTree, source: str) -> None:
        """Takes in a tree for a sequence; it replaces the last tree from the same source."""
        remote = tree.drafter not in self._local
        if remote:
            self._remote.note_tree(tree.drafter)
        behind = len(sequence.tokens) - tree.length
        if behind < 0 or not sequence.request.admits(tree.drafter) or tree.drafter in self.paused:
            return
        if tree.tokens and not self._usable(sequence, tree):
            self.counts.unusable[tree.drafter] += 1
            return
        agrees = not behind or tree.after(sequence.tokens[tree.length :]) is not None
        if agrees:
            sequence.trees[source] = tree
        if remote:
            self._telemetry.offered(sequence, tree, source, behind, agrees)

    def draft(self, plan: Plan, sequences: Mapping[int, Sequence]) -> None:
        """Asks the local drafters that pay in a step like ``plan``; ``sequences`` are by number."""
        self.waited = 0.0
        self._choose_drafters(plan)
        costs = self._step_costs(plan)
        for drafter in self._local.values():
            drafter.skip()
            if not drafter.available or not (wanted := self._wanted(drafter, plan, sequences)):
                continue
            began = self._clock()
            for number, tree in drafter.draft(sequences, wanted, costs):
                if (sequence := sequences.get(number)) is not None:
                    own = tree if tree.drafter == drafter.name else replace(tree, drafter=drafter.name)
                    self.offer(sequence, own, drafter.source)
            waited = self._clock() - began
            drafter.time_wait(waited, bool(plan.prefilling))
            self.waited += waited
            self.counts.exposed[drafter.name] += waited

    def buy(self, plan: Plan) -> list[MergedTree]:
        """The guesses that the step verifies, for each sequence that decodes."""
        bought = self._buyer.buy(plan)
        for guess, number in bought.drafted.items():
            self.counts.drafted[guess] += number
        pairs = zip(plan.decoding, bought.trees, strict=True)
        return [self._buyer.fit(sequence, tree) if tree.tokens else tree for sequence, tree in pairs]

    def learn(self, sequence: Sequence, guesses: MergedTree, accepted: AcceptedPath) -> None:
        """Learns which of a sequence's bought guesses were accepted."""
        for drafter in self._assignment.of(sequence):
            drafter.learn(sequence.number, len(accepted.rows) - 1)
        self._accounting.learn(guesses, accepted.rows, sequence.request.tenant)
        self._buyer.learn(guesses, accepted.rows, sequence.request.sampling.greedy)

    def time(self, plan: Plan, rows: int, seconds: float) -> None:
        """Learns how many seconds a step of ``rows`` rows took."""
        if plan.decoding and not plan.prefilling:
            sequences, remote = len(plan.decoding), self._remote.active(plan.decoding)
            size, guesses = self._size, rows - sequences
            self._accounting.step(size, sequences, guesses, seconds, self.waited, remote)
            if any(sequence.request.speculates for sequence in plan.decoding):
                asked = remote - self.paused
                served = self._assignment.judged(plan.decoding)
                earned = self._accounting.settle(size, sequences, guesses, seconds, self.waited, asked, served)
                self._assignment.enter(size, earned)
        self._accounting.clear()

    def _choose_drafters(self, plan: Plan) -> None:
        """Pauses and resumes drafters for steps like ``plan``; prefilling sequences count, as they will soon decode."""
        if running := len(plan.decoding) + len(plan.prefilling):
            self._size = running.bit_length()
            paused = self._policy.paused(self._size, self._local.keys() | self._remote.names)
            if paused != self.paused:
                self._pause(paused, plan.decoding)

    def _pause(self, paused: frozenset[str], sequences: Seq[Sequence]) -> None:
        """Pauses the drafters ``paused`` and drops their trees; resumes all others."""
        self.paused = paused
        for drafter in self._local.values():
            drafter.paused = drafter.name in paused
        for sequence in sequences:
            sequence.trees = {source: t for source, t in sequence.trees.items() if t.drafter not in paused}

    def _wanted(self, drafter: LocalDrafter, plan: Plan, sequences: Mapping[int, Sequence]) -> Set[int]:
        """The sequences that a drafter is asked for in a step like ``plan``."""
        if (choice := drafter.choice) is None or not self._policy.chooses:
            return drafter.sequences
        if not plan.decoding:
            return frozenset()
        trees = self._buyer.buy(plan).trees
        brought = {sequence.number: sum(tree.values) for sequence, tree in zip(plan.decoding, trees, strict=True)}
        guesses = sum(map(len, trees))
        seconds = self._cost(plan.rows + guesses) - self._cost(plan.rows) + self._cost(len(plan.decoding))
        seconds *= self._accounting.pace(self._size)
        own_tokens = {number: tokens for number, tokens in brought.items() if number in drafter.sequences}
        unread = {number: drafter.unread(sequences[number]) for number in own_tokens}
        drafter.seconds_without = seconds
        return choice.choose(
            self._size, StepForecast(len(brought) + sum(brought.values()), seconds, own_tokens), unread
        )

    def _step_costs(self, plan: Plan) -> StepCosts | None:
        """What guesses cost in a step like ``plan``."""
        rows, pace = len(plan.decoding), self._accounting.pace(self._size)
        if not rows:
            return None
        cost = self._buyer.cost(plan)
        return StepCosts(rows, lambda guesses: cost(rows + guesses) * pace)

    def _usual_wait(self, name: str) -> float:
        drafter = self._local.get(name)
        return 0.0 if drafter is None else drafter.usual_wait

    def _usable(self, sequence: Sequence, tree: DraftTree) -> bool:
        """Whether all guesses are ids of the target and were drawn as the rule of acceptance needs."""
        if min(tree.tokens) < 0 or max(tree.tokens) >= self._target.vocabulary:
            return False
        replacement = self._target.rule.replacement
        drawn = bool(tree.proposals) and all(q.replacement == replacement for q in tree.proposals.values())
        return drawn or not self._buyer.needs_proposals(sequence)
