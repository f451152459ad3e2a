"""What the verifier guesses: drafters of its own, trees from elsewhere, and which of their guesses a step buys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Sequence as Seq

from outrider.models.speculation import Drafter, DraftTree, HiddenDrafter, MergedTree, Opening, merge
from outrider.verifier.accept import Accepted
from outrider.verifier.budget import Calibrator, CostCurve, Pace, buy
from outrider.verifier.runner import Runner
from outrider.verifier.scheduler import Plan, Scheduler
from outrider.verifier.sequence import Sequence

_MOST_NODES = 63


class Guessing:
    """Trees in, guesses to verify out; learns from what the target said. Called from the engine's thread.

    Attributes:
        guessed: guesses verified so far, by drafter.
        unusable: trees that the rule of acceptance had no use for, since they came without proposals, by drafter.
    """

    def __init__(self, runner: Runner, scheduler: Scheduler, cost: CostCurve, drafters: Seq[Drafter]) -> None:
        self._runner, self._scheduler, self._cost = runner, scheduler, cost
        self._local = list(drafters)
        self._seeing = [drafter for drafter in drafters if isinstance(drafter, HiddenDrafter)]
        self._calibrators: dict[tuple[str, bool], Calibrator] = defaultdict(Calibrator)
        self._pace = Pace()
        self.guessed: dict[str, int] = defaultdict(int)
        self.unusable: dict[str, int] = defaultdict(int)

    def open(self, sequence: Sequence) -> Opening:
        """Has the verifier's own drafters start; what those elsewhere have to know."""
        request = sequence.request
        most = min(2 * (request.max_nodes or self._scheduler.limits.guesses_each), _MOST_NODES)
        proposes = self._weighs(sequence)
        opening = Opening(list(sequence.tokens), request.sampling, most, request.tenant, len(request.prompt), proposes)
        for drafter in self._local:
            if request.admits(drafter.name):
                drafter.open(sequence.number, opening)
        return opening

    def follow(self, sequence: Sequence, length: int, tokens: list[int], row: int) -> None:
        """Moves on behind ``tokens``, decided after ``length`` others; the newest at ``row`` of the last step."""
        trees = {source: tree.after(tokens) for source, tree in sequence.trees.items()}
        sequence.trees = {source: tree for source, tree in trees.items() if tree is not None}
        for drafter in self._local:
            drafter.commit(sequence.number, length, tokens)
        for seeing in self._seeing:
            seeing.see(sequence.number, self._runner.hidden(sequence, row))

    def close(self, sequence: Sequence) -> None:
        """Ends the sequence."""
        for drafter in self._local:
            drafter.close(sequence.number)

    def offer(self, sequence: Sequence, tree: DraftTree, source: str) -> None:
        """Takes in a tree for a sequence, in place of the last one from the same source."""
        behind = len(sequence.tokens) - tree.length
        if behind < 0 or not sequence.request.admits(tree.drafter):
            return
        if self._weighs(sequence) and tree.tokens and not tree.proposals:
            self.unusable[tree.drafter] += 1
            return
        current = tree.after(sequence.tokens[tree.length :])
        if current is not None:
            sequence.trees[source] = current

    def draft(self, sequences: dict[int, Sequence]) -> None:
        """Has the verifier's own drafters guess; sequences by number."""
        for drafter in self._local:
            for number, tree in drafter.draft():
                if (sequence := sequences.get(number)) is not None:
                    self.offer(sequence, tree, f"local:{drafter.name}")

    def buy(self, plan: Plan) -> list[MergedTree]:
        """The guesses that the step verifies, for each sequence that decodes."""
        limits = self._scheduler.limits
        least = self._cost.least_value(len(plan.decoding), plan.rows, limits.guesses)
        candidates = [self._candidates(sequence, least) for sequence in plan.decoding]
        caps = [sequence.request.max_nodes or limits.guesses_each for sequence in plan.decoding]
        surcharge = self._pace(len(plan.decoding), True) / self._pace(len(plan.decoding), False)
        bought = buy(candidates, caps, plan.rows, limits.guesses, self._cost, surcharge)
        return [self._fit(sequence, tree) for sequence, tree in zip(plan.decoding, bought, strict=True)]

    def _candidates(self, sequence: Sequence, least: float) -> MergedTree:
        depth = min(sequence.left - 1, self._scheduler.limits.context_length - len(sequence.tokens) - 1)
        if depth <= 0 or not sequence.trees:
            return MergedTree()
        greedy = sequence.request.sampling.greedy
        trees: Iterable[DraftTree] = sequence.trees.values()
        if self._weighs(sequence):
            trees = [sequence.trees[min(sequence.trees)]]
        merged = merge(trees, depth, lambda drafter: self._calibrators[drafter, greedy], least)
        if self._weighs(sequence):
            merged.keep_order()
            return merged
        return merged if sequence.guide is None else sequence.guide.prune(merged)

    def _weighs(self, sequence: Sequence) -> bool:
        """Whether the rule weighs a sequence's guesses by what they were drawn from."""
        return self._runner.rule.needs_proposals and not sequence.request.sampling.greedy

    def _fit(self, sequence: Sequence, tree: MergedTree) -> MergedTree:
        room = self._scheduler.room_for_guesses(sequence, len(tree))
        return tree if room == len(tree) else tree.take(range(room))

    def learn(self, sequence: Sequence, guesses: MergedTree, accepted: Accepted) -> None:
        """Takes in which of the bought guesses came true."""
        reached = set(accepted.rows)
        greedy = sequence.request.sampling.greedy
        for node, (parent, drafter) in enumerate(zip(guesses.parents, guesses.drafters, strict=True)):
            self.guessed[drafter] += 1
            if parent + 1 in reached:
                self._calibrators[drafter, greedy].learn(guesses.confidences[node], node + 1 in reached)

    def time(self, plan: Plan, rows: int, seconds: float) -> None:
        """Takes in how long a step of ``rows`` rows took."""
        if plan.decoding and not plan.prefilling:
            self._pace.learn(len(plan.decoding), rows > plan.rows, self._cost(rows), seconds)
