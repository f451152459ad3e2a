"""Buys guesses for a step, and keeps how often each drafter's guesses were right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Seq

from outrider.engine.requests.sequence import Sequence
from outrider.engine.scheduling.cost_curve import CostCurve
from outrider.engine.scheduling.plan import Plan
from outrider.engine.scheduling.scheduler import Scheduler
from outrider.engine.speculation import NO_GUESSES, Acceptance, DraftTree, MergedTree, merge
from outrider.engine.speculation.policy.budget import Calibrator
from outrider.engine.speculation.policy.purchase import BoughtGuesses, BuyingSequence, BuyTerms, Purchase
from outrider.engine.speculation.trees.tree import PREDICTION


class GuessBuyer:
    """Buys guesses for the sequences that decode.

    Args:
        rule: rule of acceptance.
        scheduler: limits guesses and holds pages for them.
        cost: seconds of a step by rows.
        usual_wait: seconds for which steps usually wait for a drafter, by its name.
    """

    def __init__(
        self, rule: Acceptance, scheduler: Scheduler, cost: CostCurve, usual_wait: Callable[[str], float]
    ) -> None:
        self._rule, self._scheduler, self._cost, self._usual_wait = rule, scheduler, cost, usual_wait
        self._calibrators: dict[tuple[str, bool], Calibrator] = defaultdict(Calibrator)
        self._purchase = Purchase(self._calibrators)

    def buy(self, plan: Plan) -> BoughtGuesses:
        """The guesses worth verifying in a step like ``plan``, the step without guesses."""
        if not any(sequence.trees for sequence in plan.decoding):
            return BoughtGuesses([NO_GUESSES] * len(plan.decoding), {}, [])
        rows, most = len(plan.decoding), max(self._scheduler.most_guesses(plan), 0)
        cost = self.cost(plan)
        least = cost.least_value(rows, rows, most)
        terms = BuyTerms(rows, most, least, cost, self._scheduler.limits.guesses_tenant)
        bought = self._purchase([self._buying_sequence(sequence, least) for sequence in plan.decoding], terms)
        for owner, outdated in bought.outdated:
            _drop(plan.decoding[owner], outdated)
        return bought

    def cost(self, plan: Plan) -> CostCurve:
        """Seconds of a step like ``plan`` by the rows of sequences that decode, less the time of its prompts."""
        if not plan.prefilling:
            return self._cost
        return self._cost.beside(plan.prompt_rows, len(plan.decoding), max(self._scheduler.most_guesses(plan), 0))

    def fit(self, sequence: Sequence, tree: MergedTree) -> MergedTree:
        """The part of a bought tree that finds pages."""
        return tree.take(range(self._scheduler.room_for_guesses(sequence, len(tree))))

    def needs_proposals(self, sequence: Sequence) -> bool:
        """Whether the rule of acceptance needs the distributions that the sequence's guesses were drawn from."""
        return self._rule.needs_proposals and not sequence.request.sampling.greedy

    def learn(self, guesses: MergedTree, rows: Seq[int], greedy: bool) -> None:
        """Learns which guesses of a ``greedy`` or sampled sequence were accepted: those on ``rows``, counted from 1."""
        for node, parent in enumerate(guesses.parents):
            if parent + 1 in rows:
                calibrator = self._calibrators[guesses.drafters[node], greedy]
                calibrator.learn(guesses.confidences[node], node + 1 in rows)

    def _buying_sequence(self, sequence: Sequence, least: float) -> BuyingSequence:
        request, tokens = sequence.request, sequence.tokens
        depth = max(min(sequence.left, self._scheduler.limits.context_length - len(tokens)) - 1, 0)
        cap, greedy = request.speculation.max_nodes or self._scheduler.limits.guesses_each, request.sampling.greedy
        merged = None
        if sequence.guide is not None or self.needs_proposals(sequence):
            merged = self._candidates(sequence, depth, least)
        trees = list(sequence.trees.values())
        if len(trees) > 1:
            trees.sort(key=self._wait)
        return BuyingSequence(tokens, trees, depth, cap, greedy, request.tenant, merged)

    def _wait(self, tree: DraftTree) -> float:
        return -1.0 if tree.drafter == PREDICTION else self._usual_wait(tree.drafter)

    def _candidates(self, sequence: Sequence, depth: int, least: float) -> MergedTree:
        """The guesses that a sequence may buy if the rule needs their distributions or a grammar prunes them."""
        _cut(sequence)
        if not depth or not sequence.trees:
            return NO_GUESSES
        greedy, proposes = sequence.request.sampling.greedy, self.needs_proposals(sequence)
        trees: Iterable[DraftTree] = sorted(sequence.trees.values(), key=self._wait)
        if proposes:
            trees = [sequence.trees[min(sequence.trees)]]
        replacement = proposes and self._rule.replacement
        merged = merge(trees, depth, lambda drafter: self._calibrators[drafter, greedy], least, replacement)
        if proposes:
            merged.keep_order()
        elif sequence.guide is not None:
            merged = sequence.guide.prune(merged)
        return merged


def _drop(sequence: Sequence, outdated: DraftTree) -> None:
    sequence.trees = {source: tree for source, tree in sequence.trees.items() if tree is not outdated}


def _cut(sequence: Sequence) -> None:
    """Cuts a sequence's trees to the parts that agree with its tokens."""
    trees = {source: tree.after(sequence.tokens[tree.length :]) for source, tree in sequence.trees.items()}
    sequence.trees = {source: tree for source, tree in trees.items() if tree is not None}
