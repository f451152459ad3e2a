"""What the verifier guesses: drafters of its own, trees from elsewhere, and which of their guesses a step buys."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from time import perf_counter

from outrider.models.speculation import (
    NO_GUESSES,
    Drafter,
    DraftTree,
    HiddenDrafter,
    MergedTree,
    Opening,
    SparingDrafter,
    merge,
)
from outrider.verifier.accept import Accepted
from outrider.verifier.book import Prices, Yield
from outrider.verifier.budget import Calibrator, CostCurve, Pace
from outrider.verifier.counts import Counts
from outrider.verifier.going_rate import GoingRate
from outrider.verifier.purchase import Prospect, Terms, best_purchase
from outrider.verifier.runner import Runner
from outrider.verifier.scheduler import Plan, Scheduler
from outrider.verifier.sequence import Sequence
from outrider.verifier.worth import Regime, Worth

_MOST_NODES = 63
_FEWEST, _PART = 2, 4
_INSTALMENTS = 32


class Guessing:
    """Trees in, guesses to verify out; learns from what the target said. Called from the engine's thread."""

    def __init__(
        self, runner: Runner, scheduler: Scheduler, cost: CostCurve, drafters: Seq[Drafter], worth: Worth
    ) -> None:
        self._runner, self._scheduler, self._cost = runner, scheduler, cost
        self._local = list(drafters)
        self._seeing = [drafter for drafter in drafters if isinstance(drafter, HiddenDrafter)]
        self._sparing = {drafter.name: drafter for drafter in drafters if isinstance(drafter, SparingDrafter)}
        self._few: dict[str, int] = {}
        self._behind: dict[str, dict[int, int]] = {drafter.name: {} for drafter in drafters}
        self._awake, self._dozing = self._local, list[dict[int, int]]()
        self._calibrators: dict[tuple[str, bool], Calibrator] = defaultdict(Calibrator)
        self._purchase = best_purchase(self._calibrators)
        self._pace, self._worth, self._rate = Pace(), worth, GoingRate(drafters)
        self._known = {drafter.name for drafter in drafters}
        self._heard: set[str] = set()
        self._bought: Counter[str] = Counter()
        self._accepted: Counter[str] = Counter()
        self._waited: dict[str, float] = {}
        self._offered = False
        self._usual: dict[str, float] = defaultdict(float)
        self._owed: dict[str, float] = defaultdict(float)
        self._regime = Regime(0, True)
        self._open: set[int] = set()
        self.counts = Counts()
        self.quiet: frozenset[str] = frozenset()

    def open(self, sequence: Sequence) -> Opening:
        """Has the verifier's own drafters start; what those elsewhere have to know."""
        request = sequence.request
        most = min(2 * (request.max_nodes or self._scheduler.limits.guesses_each), _MOST_NODES)
        tokens, proposes = list(sequence.tokens), self._weighs(sequence)
        twins = proposes and self._runner.rule.replacement
        opening = Opening(tokens, request.sampling, most, request.tenant, len(request.prompt), proposes, twins)
        self._open.add(sequence.number)
        for drafter in self._local:
            if request.admits(drafter.name):
                drafter.open(sequence.number, opening)
        return opening

    def follow(self, sequence: Sequence, length: int, tokens: list[int], row: int) -> None:
        """Moves on behind ``tokens``, decided after ``length`` others; the newest at ``row`` of the last step.

        Trees stay as they are until guesses are bought: most are replaced before that.
        """
        for drafter in self._awake:
            drafter.commit(sequence.number, length, tokens)
        for behind in self._dozing:
            behind.setdefault(sequence.number, length)
        for seeing in self._seeing:
            seeing.see(sequence.number, self._runner.hidden(sequence, row))

    def close(self, sequence: Sequence) -> None:
        """Ends the sequence."""
        self._open.discard(sequence.number)
        for drafter in self._local:
            if (length := self._behind[drafter.name].pop(sequence.number, None)) is not None:
                drafter.commit(sequence.number, length, sequence.tokens[length:])
            drafter.close(sequence.number)

    def _look(self, plan: Plan) -> None:
        """Sees who is worth asking among sequences like those of ``plan``; those that prefill will soon decode."""
        running = [*plan.decoding, *(sequence for sequence, _ in plan.prefilling)]
        if not running:
            return
        self._regime = Regime.of([each.request.sampling.greedy for each in running])
        quiet = self._worth.quiet(self._regime)
        if quiet != self.quiet:
            self._hush(quiet, plan.decoding)
        few = max(_FEWEST, len(plan.decoding) // _PART)
        tried = [name for name in self._sparing if name not in quiet and self._worth.tries_few(self._regime, name)]
        self._few = dict.fromkeys(tried, few)

    def _hush(self, quiet: frozenset[str], sequences: Seq[Sequence]) -> None:
        """Leaves those alone that are ``quiet``, and forgets what they have guessed."""
        self.quiet = quiet
        self._awake = [each for each in self._local if each.name not in quiet or each in self._seeing]
        self._dozing = [self._behind[each.name] for each in self._local if each not in self._awake]
        for sequence in sequences:
            sequence.trees = {source: t for source, t in sequence.trees.items() if t.drafter not in quiet}

    def _catch_up(self, drafter: Drafter, sequences: dict[int, Sequence]) -> None:
        """Tells a drafter that was left alone what was decided meanwhile: while it rests, it costs nothing."""
        behind = self._behind[drafter.name]
        for number, length in behind.items():
            drafter.commit(number, length, sequences[number].tokens[length:])
        behind.clear()

    def offer(self, sequence: Sequence, tree: DraftTree, source: str) -> None:
        """Takes in a tree for a sequence, in place of the last one from the same source."""
        self._heard.add(tree.drafter)
        behind = len(sequence.tokens) - tree.length
        if behind < 0 or not sequence.request.admits(tree.drafter) or tree.drafter in self.quiet:
            return
        if tree.tokens and (not self._knows(tree) or (self._weighs(sequence) and not self._drawn(tree))):
            self.counts.unusable[tree.drafter] += 1
            return
        if not behind or tree.after(sequence.tokens[tree.length :]) is not None:
            sequence.trees[source] = tree

    def draft(self, plan: Plan, sequences: dict[int, Sequence]) -> None:
        """Has the verifier's own drafters guess, those that pay in a step like ``plan``; sequences by number."""
        self._waited = {}
        self._look(plan)
        for drafter in self._local if self._open else ():
            if drafter.name in self.quiet:
                continue
            began = perf_counter()
            self._catch_up(drafter, sequences)
            few, sparing = self._few.get(drafter.name), self._sparing.get(drafter.name)
            trees = sparing.draft_few(few) if few and sparing else drafter.draft()
            for number, tree in trees:
                if (sequence := sequences.get(number)) is not None:
                    self.offer(sequence, tree, f"local:{drafter.name}")
            self._waited[drafter.name] = waited = perf_counter() - began
            self._usual[drafter.name] += (waited - self._usual[drafter.name]) / 32
            self._owed[drafter.name] += waited if plan.prefilling else 0.0
            self.counts.exposed[drafter.name] += waited

    def buy(self, plan: Plan) -> list[MergedTree]:
        """The guesses that the step verifies, for each sequence that decodes."""
        self._offered = False
        if not any(sequence.trees for sequence in plan.decoding):
            return [NO_GUESSES] * len(plan.decoding)
        limits, most = self._scheduler.limits, self._scheduler.most_guesses(plan)
        least = self._cost.least_value(len(plan.decoding), plan.rows, most)
        surcharge = self._pace(self._regime, True) / self._pace(self._regime, False)
        terms = Terms(plan.rows, most, least, self._cost, surcharge, limits.guesses_tenant)
        bought = self._purchase([self._prospect(sequence, least) for sequence in plan.decoding], terms)
        for owner, dead in bought.dead:
            _drop(plan.decoding[owner], dead)
        self._offered = any(sequence.trees for sequence in plan.decoding)
        self._heard |= {tree.drafter for sequence in plan.decoding for tree in sequence.trees.values()}
        for guess, number in bought.drafted.items():
            self.counts.drafted[guess] += number
        return [self._fit(sequence, tree) for sequence, tree in zip(plan.decoding, bought.trees, strict=True)]

    def _prospect(self, sequence: Sequence, least: float) -> Prospect:
        request, tokens = sequence.request, sequence.tokens
        depth = max(min(sequence.left, self._scheduler.limits.context_length - len(tokens)) - 1, 0)
        cap, greedy = request.max_nodes or self._scheduler.limits.guesses_each, request.sampling.greedy
        ready = None
        if sequence.guide is not None or self._weighs(sequence):
            ready = self._candidates(sequence, depth, least)
        trees = list(sequence.trees.values())
        if len(trees) > 1:
            trees.sort(key=lambda tree: self._usual[tree.drafter])
        return Prospect(tokens, trees, depth, cap, greedy, request.tenant, ready)

    def _candidates(self, sequence: Sequence, depth: int, least: float) -> MergedTree:
        """What a sequence may buy whose guesses are weighed by the rule, or pruned by a grammar."""
        _age(sequence)
        if not depth or not sequence.trees:
            return NO_GUESSES
        greedy, weighs = sequence.request.sampling.greedy, self._weighs(sequence)
        trees: Iterable[DraftTree] = sorted(sequence.trees.values(), key=lambda tree: self._usual[tree.drafter])
        if weighs:
            trees = [sequence.trees[min(sequence.trees)]]
        twins = weighs and self._runner.rule.replacement
        merged = merge(trees, depth, lambda drafter: self._calibrators[drafter, greedy], least, twins)
        if weighs:
            merged.keep_order()
        elif sequence.guide is not None:
            merged = sequence.guide.prune(merged)
        self.counts.drafted.update(zip(merged.drafters, merged.depths, strict=True))
        return merged

    def _weighs(self, sequence: Sequence) -> bool:
        """Whether the rule weighs a sequence's guesses by what they were drawn from."""
        return self._runner.rule.needs_proposals and not sequence.request.sampling.greedy

    def _knows(self, tree: DraftTree) -> bool:
        """Whether all guesses are ids of the target."""
        return min(tree.tokens) >= 0 and max(tree.tokens) < self._runner.model.config.vocab_size

    def _drawn(self, tree: DraftTree) -> bool:
        """Whether guesses were drawn as the rule needs it."""
        replacement = self._runner.rule.replacement
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
        reached, greedy, counts = set(accepted.rows), sequence.request.sampling.greedy, self.counts
        told = zip(guesses.parents, guesses.drafters, guesses.depths, guesses.firsts, guesses.confidences, strict=True)
        for row, (parent, drafter, depth, first, confidence) in enumerate(told, 1):
            self._bought[first] += 1
            counts.bought[drafter, depth] += 1
            if parent + 1 in reached:
                self._calibrators[drafter, greedy].learn(confidence, row in reached)
            if row in reached:
                self._accepted[first] += 1
                counts.accepted[drafter, depth] += 1

    def time(self, plan: Plan, rows: int, seconds: float) -> None:
        """Takes in how long a step of ``rows`` rows took."""
        if plan.decoding and not plan.prefilling:
            regime, guessing, waited = self._regime, rows > plan.rows, sum(self._waited.values())
            self._known |= self._heard
            admitted = self._admitted(plan) if self._known - self.quiet else frozenset()
            expected = self._cost(rows)
            self.counts.predicted += expected * self._pace(regime, guessing) + waited
            self.counts.real += seconds
            if guessing or self._worth.is_plain(regime, admitted):
                self._pace.learn(regime, guessing, expected, max(seconds - waited, 0.0))
            if self._offered and not guessing:
                self._pace.fade(regime)
            if any(each.request.speculates for each in plan.decoding):
                self._weigh(plan, admitted, rows, seconds)
        if self._bought:
            self._bought, self._accepted = Counter(), Counter()

    def _admitted(self, plan: Plan) -> frozenset[str]:
        """Drafters that are known, and that some sequence admits."""
        return frozenset(name for name in self._known if any(each.request.admits(name) for each in plan.decoding))

    def _weigh(self, plan: Plan, admitted: frozenset[str], rows: int, seconds: float) -> None:
        """Judges drafters by what they did; those that were asked and have not been heard of cost nothing."""
        count, guesses, curve = len(plan.decoding), rows - plan.rows, self._cost(rows)
        next_row = (self._cost(rows + 1) - curve) * self._pace(self._regime, guesses > 0)
        self._rate.learn(self._regime, count + sum(self._accepted.values()), seconds, next_row)
        prices = Prices.of(self._cost(plan.rows), curve, self._pace, self._regime, count, guesses, seconds)
        asked = [name for name in admitted - self.quiet if name in self._heard or name in self._waited]
        self._worth.step(self._regime, {name: self._yield(name, count) for name in asked}, prices)
        self._heard.clear()

    def _yield(self, name: str, sequences: int) -> Yield:
        """What a drafter did in this step, with a share of what it did beside prompts, which is there for many."""
        owed = self._owed[name] / _INSTALMENTS
        self._owed[name] -= owed
        part = min(self._few.get(name, sequences) / sequences, 1.0)
        return Yield(self._bought[name], self._accepted[name], self._waited.get(name, 0.0), owed, part)


def _drop(sequence: Sequence, dead: DraftTree) -> None:
    sequence.trees = {source: tree for source, tree in sequence.trees.items() if tree is not dead}


def _age(sequence: Sequence) -> None:
    """Cuts a sequence's trees to what still agrees with its tokens."""
    trees = {source: tree.after(sequence.tokens[tree.length :]) for source, tree in sequence.trees.items()}
    sequence.trees = {source: tree for source, tree in trees.items() if tree is not None}
