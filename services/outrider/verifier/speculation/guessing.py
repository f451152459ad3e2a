"""What the verifier guesses: drafters of its own, trees from elsewhere, and which of their guesses a step buys."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Set
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from operator import attrgetter
from time import perf_counter

from outrider.mesh.telemetry import timeline
from outrider.mesh.telemetry.timeline import Grown, Taken
from outrider.models.speculation import (
    NO_GUESSES,
    Acceptance,
    Drafter,
    DraftTree,
    MergedTree,
    Opening,
    merge,
)
from outrider.verifier.acceptance.accept import Accepted
from outrider.verifier.requests.sequence import Sequence
from outrider.verifier.scheduling.cost_curve import CostCurve
from outrider.verifier.scheduling.scheduler import Plan, Scheduler
from outrider.verifier.speculation.asking import Ready
from outrider.verifier.speculation.budget import Calibrator, Pace
from outrider.verifier.speculation.counts import Counts
from outrider.verifier.speculation.going_rate import GoingRate
from outrider.verifier.speculation.local_drafter import OwnDrafter
from outrider.verifier.speculation.purchase import Prospect, Purchased, Terms, best_purchase
from outrider.verifier.speculation.worth import Prices, Worth, Yield
from torch import Tensor

_MOST_NODES = 63
_REMEMBERED_S = 5.0
_READ = 64


@dataclass(frozen=True, slots=True)
class TargetView:
    """What speculation has to know of the target.

    Attributes:
        rule: by which guesses are accepted.
        vocabulary: number of the target's ids.
        hidden: the target's last hidden state, float32 [hidden_size], of a sequence at a row of the last step.
    """

    rule: Acceptance
    vocabulary: int
    hidden: Callable[[Sequence, int], Tensor]


class Guessing:
    """Trees in, guesses to verify out; learns from what the target said. Called from the engine's thread."""

    def __init__(
        self,
        target: TargetView,
        scheduler: Scheduler,
        cost: CostCurve,
        drafters: Seq[Drafter],
        worth: Worth,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._target, self._scheduler, self._cost, self._clock = target, scheduler, cost, clock
        owned = [OwnDrafter(drafter, worth.asking(cost(_READ) / _READ)) for drafter in drafters]
        self._own = {own.name: own for own in sorted(owned, key=attrgetter("priced"))}
        self._asked: dict[int, list[OwnDrafter]] = {}
        self._calibrators: dict[tuple[str, bool], Calibrator] = defaultdict(Calibrator)
        self._purchase = best_purchase(self._calibrators)
        self._pace, self._worth, self._rate = Pace(), worth, GoingRate(drafters)
        self._others: dict[str, float] = {}
        self._bought: Counter[str] = Counter()
        self._accepted: Counter[str] = Counter()
        self._offered, self._waited = False, 0.0
        self._size = 0
        self.counts = Counts()
        self.quiet: frozenset[str] = frozenset()

    @property
    def waited(self) -> float:
        """Seconds for which the last step waited for the verifier's own drafters."""
        return self._waited

    def open(self, sequence: Sequence) -> Opening:
        """Has the verifier's own drafters start; what those elsewhere have to know."""
        request = sequence.request
        most = min(2 * (request.max_nodes or self._scheduler.limits.guesses_each), _MOST_NODES)
        tokens, proposes = list(sequence.tokens), self._weighs(sequence)
        twins = proposes and self._target.rule.replacement
        opening = Opening(tokens, request.sampling, most, request.tenant, len(request.prompt), proposes, twins)
        asked = self._asked[sequence.number] = [own for own in self._own.values() if request.admits(own.name)]
        for own in asked:
            own.open(sequence.number, opening)
        return opening

    def follow(self, sequence: Sequence, length: int, tokens: list[int], row: int) -> None:
        """Moves on behind ``tokens``, decided after ``length`` others; the newest at ``row`` of the last step.

        Trees stay as they are until guesses are bought: most are replaced before that.
        """
        for own in self._asked[sequence.number]:
            own.follow(sequence.number, length, tokens)
            if own.seeing is not None:
                own.seeing.see(sequence.number, self._target.hidden(sequence, row))

    def close(self, sequence: Sequence) -> None:
        """Ends the sequence."""
        for own in self._asked.pop(sequence.number, ()):
            own.close(sequence)

    def _look(self, plan: Plan) -> None:
        """Sees who is worth asking among sequences like those of ``plan``; those that prefill will soon decode."""
        if running := len(plan.decoding) + len(plan.prefilling):
            self._size = running.bit_length()
            quiet = self._worth.quiet(self._size, self._own.keys() | self._others)
            if quiet != self.quiet:
                self._hush(quiet, plan.decoding)

    def _hush(self, quiet: frozenset[str], sequences: Seq[Sequence]) -> None:
        """Pauses those that are ``quiet``, and forgets what they have guessed."""
        self.quiet = quiet
        for own in self._own.values():
            own.paused = own.name in quiet
        for sequence in sequences:
            sequence.trees = {source: t for source, t in sequence.trees.items() if t.drafter not in quiet}

    def offer(self, sequence: Sequence, tree: DraftTree, source: str) -> None:
        """Takes in a tree for a sequence, in place of the last one from the same source."""
        if tree.drafter not in self._own:
            self._others[tree.drafter] = self._clock()
        behind = len(sequence.tokens) - tree.length
        if behind < 0 or not sequence.request.admits(tree.drafter) or tree.drafter in self.quiet:
            return
        if tree.tokens and (not self._knows(tree) or (self._weighs(sequence) and not self._drawn(tree))):
            self.counts.unusable[tree.drafter] += 1
            return
        agrees = not behind or tree.after(sequence.tokens[tree.length :]) is not None
        if agrees:
            sequence.trees[source] = tree
        if tree.drafter not in self._own and timeline() is not None:
            _note_taken(sequence, tree, source, behind, agrees)

    def draft(self, plan: Plan, sequences: dict[int, Sequence]) -> None:
        """Has the verifier's own drafters guess, those that pay in a step like ``plan``; sequences by number."""
        self._waited = 0.0
        self._look(plan)
        for own in self._own.values():
            own.skip()
            if not own.able or not (wanted := self._wanted(own, plan, sequences)):
                continue
            began = self._clock()
            for number, tree in own.draft(sequences, wanted):
                if (sequence := sequences.get(number)) is not None:
                    self.offer(sequence, tree, own.source)
            waited = self._clock() - began
            own.wait(waited, bool(plan.prefilling))
            self._waited += waited
            self.counts.exposed[own.name] += waited

    def _wanted(self, own: OwnDrafter, plan: Plan, sequences: dict[int, Sequence]) -> Set[int]:
        """The sequences that a drafter is asked for in a step like ``plan``."""
        if (asking := own.asking) is None or not self._worth.chooses:
            return own.sequences
        if not plan.decoding:
            return frozenset()
        trees = self._buy(plan).trees
        brought = {each.number: sum(tree.values) for each, tree in zip(plan.decoding, trees, strict=True)}
        guesses = sum(map(len, trees))
        seconds = self._cost(plan.rows + guesses) - self._cost(plan.rows) + self._cost(len(plan.decoding))
        seconds *= self._pace(self._size, guesses > 0)
        mine = {number: tokens for number, tokens in brought.items() if number in own.sequences}
        unread = {number: own.unread(sequences[number]) for number in mine}
        own.alone = seconds
        return asking.choose(self._size, Ready(len(brought) + sum(brought.values()), seconds, mine), unread)

    def buy(self, plan: Plan) -> list[MergedTree]:
        """The guesses that the step verifies, for each sequence that decodes."""
        bought = self._buy(plan)
        self._offered = any(sequence.trees for sequence in plan.decoding)
        for guess, number in bought.drafted.items():
            self.counts.drafted[guess] += number
        return [self._fit(sequence, tree) for sequence, tree in zip(plan.decoding, bought.trees, strict=True)]

    def _buy(self, plan: Plan) -> Purchased:
        """The guesses that are worth verifying of those at hand."""
        if not any(sequence.trees for sequence in plan.decoding):
            return Purchased([NO_GUESSES] * len(plan.decoding), {}, [])
        rows, most = len(plan.decoding), max(self._scheduler.most_guesses(plan), 0)
        cost = self._cost.beside(plan.prompt_rows, rows, most) if plan.prefilling else self._cost
        surcharge = self._pace.surcharge(self._size)
        least = cost.least_value(rows, rows, most)
        terms = Terms(rows, most, least, cost, surcharge, self._scheduler.limits.guesses_tenant)
        bought = self._purchase([self._prospect(sequence, least) for sequence in plan.decoding], terms)
        for owner, dead in bought.dead:
            _drop(plan.decoding[owner], dead)
        return bought

    def _prospect(self, sequence: Sequence, least: float) -> Prospect:
        request, tokens = sequence.request, sequence.tokens
        depth = max(min(sequence.left, self._scheduler.limits.context_length - len(tokens)) - 1, 0)
        cap, greedy = request.max_nodes or self._scheduler.limits.guesses_each, request.sampling.greedy
        ready = None
        if sequence.guide is not None or self._weighs(sequence):
            ready = self._candidates(sequence, depth, least)
        trees = list(sequence.trees.values())
        if len(trees) > 1:
            trees.sort(key=self._usual)
        return Prospect(tokens, trees, depth, cap, greedy, request.tenant, ready)

    def _usual(self, tree: DraftTree) -> float:
        """Seconds for which steps usually wait for a tree's drafter."""
        own = self._own.get(tree.drafter)
        return 0.0 if own is None else own.usual

    def _candidates(self, sequence: Sequence, depth: int, least: float) -> MergedTree:
        """What a sequence may buy whose guesses are weighed by the rule, or pruned by a grammar."""
        _age(sequence)
        if not depth or not sequence.trees:
            return NO_GUESSES
        greedy, weighs = sequence.request.sampling.greedy, self._weighs(sequence)
        trees: Iterable[DraftTree] = sorted(sequence.trees.values(), key=self._usual)
        if weighs:
            trees = [sequence.trees[min(sequence.trees)]]
        twins = weighs and self._target.rule.replacement
        merged = merge(trees, depth, lambda drafter: self._calibrators[drafter, greedy], least, twins)
        if weighs:
            merged.keep_order()
        elif sequence.guide is not None:
            merged = sequence.guide.prune(merged)
        return merged

    def _weighs(self, sequence: Sequence) -> bool:
        """Whether the rule weighs a sequence's guesses by what they were drawn from."""
        return self._target.rule.needs_proposals and not sequence.request.sampling.greedy

    def _knows(self, tree: DraftTree) -> bool:
        """Whether all guesses are ids of the target."""
        return min(tree.tokens) >= 0 and max(tree.tokens) < self._target.vocabulary

    def _drawn(self, tree: DraftTree) -> bool:
        """Whether guesses were drawn as the rule needs it."""
        replacement = self._target.rule.replacement
        return bool(tree.proposals) and all(q.replacement == replacement for q in tree.proposals.values())

    def _fit(self, sequence: Sequence, tree: MergedTree) -> MergedTree:
        if not tree:
            return tree
        room = self._scheduler.room_for_guesses(sequence, len(tree))
        return tree if room == len(tree) else tree.take(range(room))

    def learn(self, sequence: Sequence, guesses: MergedTree, accepted: Accepted) -> None:
        """Takes in which of the bought guesses came true.

        What a drafter is worth is what nobody cheaper had guessed as well.
        """
        rows, greedy, counts = accepted.rows, sequence.request.sampling.greedy, self.counts
        for own in self._asked[sequence.number]:
            own.came(sequence.number, len(rows) - 1)
        drafters, depths = guesses.drafters, guesses.depths
        for first in guesses.firsts:
            self._bought[first] += 1
        for guess in zip(drafters, depths, strict=True):
            counts.bought[guess] += 1
        for row in rows[1:]:
            self._accepted[guesses.firsts[row - 1]] += 1
            counts.accepted[drafters[row - 1], depths[row - 1]] += 1
        for node, parent in enumerate(guesses.parents):
            if parent + 1 in rows:
                self._calibrators[drafters[node], greedy].learn(guesses.confidences[node], node + 1 in rows)

    def time(self, plan: Plan, rows: int, seconds: float) -> None:
        """Takes in how long a step of ``rows`` rows took."""
        if plan.decoding and not plan.prefilling:
            size, guesses, expected = self._size, rows - len(plan.decoding), self._cost(rows)
            real, others = max(seconds - self._waited, 0.0), self._asked_elsewhere(plan)
            self.counts.predicted += expected * self._pace(size, guesses > 0) + self._waited
            self.counts.real += seconds
            if guesses or self._worth.is_plain(size, others):
                self._pace.learn(size, guesses > 0, expected, real)
            if self._offered and not guesses:
                self._pace.fade(size)
            for own in self._own.values():
                own.took(size, seconds)
            if any(sequence.request.speculates for sequence in plan.decoding):
                self._weigh(len(plan.decoding), others, guesses, expected, seconds)
        self._bought.clear()
        self._accepted.clear()

    def _asked_elsewhere(self, plan: Plan) -> Set[str]:
        """Drafters in other processes that have been heard of lately and that some sequence admits."""
        now = self._clock()
        self._others = {name: heard for name, heard in self._others.items() if now - heard < _REMEMBERED_S}
        return {name for name in self._others if any(each.request.admits(name) for each in plan.decoding)}

    def _weigh(self, sequences: int, others: Set[str], guesses: int, expected: float, seconds: float) -> None:
        """Judges drafters by what they did; those in other processes by all that the step took longer."""
        asked, cost, alone = others - self.quiet, self._cost, self._pace(self._size, False)
        pace = self._pace(self._size, True) if guesses and not asked else alone
        decided, next_row = sequences + sum(self._accepted.values()), cost(sequences + guesses + 1) - expected
        if any(own.priced and own.waited is not None for own in self._own.values()):
            self._rate.learn(self._size, decided, seconds, next_row * pace)
        plain = cost(sequences) * alone
        row = max(expected * pace - plain, 0.0) / max(guesses, 1)
        yields = {
            name: Yield(self._bought[name], self._accepted[name], own.waited, own.owe())
            for name, own in self._own.items()
            if own.waited is not None
        }
        held_up = (seconds - self._waited - expected * alone) / max(len(asked), 1)
        yields |= {name: Yield(self._bought[name], self._accepted[name], held_up) for name in asked}
        self._worth.step(self._size, yields, Prices(plain / sequences, row, seconds), bool(asked))


def _drop(sequence: Sequence, dead: DraftTree) -> None:
    sequence.trees = {source: tree for source, tree in sequence.trees.items() if tree is not dead}


def _age(sequence: Sequence) -> None:
    """Cuts a sequence's trees to what still agrees with its tokens."""
    trees = {source: tree.after(sequence.tokens[tree.length :]) for source, tree in sequence.trees.items()}
    sequence.trees = {source: tree for source, tree in trees.items() if tree is not None}


def _note_taken(sequence: Sequence, tree: DraftTree, source: str, behind: int, kept: bool) -> None:
    """Writes down in the time line that a tree was offered."""
    if (to := timeline()) is not None:
        grown = Grown.of(sequence.number, tree.length, tree.parents)
        to.note(Taken(perf_counter(), to.instance, grown, source, behind, kept))
