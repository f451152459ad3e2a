"""Compares rules of acceptance on trees of the same shapes: ``python -m outrider.benches.verifier.acceptance``.

At random places of held-out text the draft model makes a tree of a fixed shape, drawn as each rule needs. The target
verifies the tree, and the accepted guesses are counted.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from outrider.engine.models import pocket
from outrider.engine.models.llama import LlamaModel
from outrider.engine.sampling import Dice, Sampling
from outrider.engine.speculation import Acceptance, MergedTree, VerifiedTree
from outrider.engine.speculation.acceptance.accept import Race, walk
from outrider.engine.speculation.acceptance.rejection import Rejection
from outrider.engine.speculation.trees.proposals import own_seed, propose
from outrider.engine.text import Tokenizer
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.race_sample import race_sample, race_topk
from outrider.training.pocket.corpus import gather, standard_library
from torch import Tensor

_PAGE_SIZE = 16
_SHAPES = "1,1,1,1/2,2,1,1/4,2,1,1/4,4/8"


class Place:
    """A model with the keys and values of some text."""

    def __init__(self, model: LlamaModel, text: Sequence[int], guesses: int) -> None:
        self._model, self._context = model, len(text)
        self._pages = range(-(-(len(text) + guesses) // _PAGE_SIZE))
        self._pool = model.new_pool(len(self._pages), _PAGE_SIZE)
        self.behind = self._run(text, 0, None)[-1:]

    def below(self, tree: MergedTree) -> Tensor:
        """Float32 [1 + nodes, V] logits behind the text and behind each guess."""
        if not len(tree):
            return self.behind
        return torch.cat([self.behind, self._run(tree.tokens, self._context, tree.parents)])

    def _run(self, tokens: Sequence[int], context: int, parents: Sequence[int] | None) -> Tensor:
        rows = SequenceRows(len(tokens), context, self._pages, parents)
        batch = RaggedBatch.build([rows], _PAGE_SIZE)
        return self._model.logits(self._model.forward(torch.tensor(tokens), batch, self._pool))


@dataclass(frozen=True, slots=True)
class Trial:
    """One place and one seed, for all rules."""

    target: Place
    draft: Place
    position: int
    sampling: Sampling
    vocabulary: int

    def accepted(self, rule: Acceptance, shape: Sequence[int]) -> int:
        """Number of guesses that ``rule`` accepts of a tree of ``shape`` (children of a node, by depth)."""
        tree, dice = self._grow(rule, shape), Dice(self.sampling.seed, self.vocabulary)
        logits = self.target.below(tree)
        rolls = torch.stack([dice.at(self.position + depth) for depth in (0, *tree.depths)])
        drawn = race_sample(self.sampling.shape(logits), rolls).tolist()
        decided = rule.decide(VerifiedTree(tree, logits, self.sampling, dice, self.position, drawn))
        return len(walk(tree.tokens, tree.parents, decided).rows) - 1

    def _grow(self, rule: Acceptance, shape: Sequence[int]) -> MergedTree:
        tree, leaves, proposes = MergedTree(), [-1], rule.needs_proposals
        dice = Dice(own_seed(self.sampling.seed) if proposes else self.sampling.seed, self.vocabulary)
        for depth, children in enumerate(shape):
            logits = self.sampling.shape(self.draft.below(tree)[[leaf + 1 for leaf in leaves]])
            rolls = dice.at(self.position + depth).expand(len(leaves), -1)
            if proposes:
                proposed = propose(logits, rolls, children, rule.replacement)
                drawn = [tokens for tokens, _ in proposed]
                tree.proposals.update(zip(leaves, (proposal for _, proposal in proposed), strict=True))
            else:
                drawn = race_topk(logits, rolls, children)[0].tolist()
            parents, leaves = leaves, []
            for parent, tokens in zip(parents, drawn, strict=True):
                for token in tokens:
                    leaves.append(len(tree))
                    tree.append(token, parent, 1.0, depth + 1, 1.0, "draft")
        return tree


def main() -> None:
    """Prints the mean number of accepted guesses a step."""
    options = _options()
    torch.set_num_threads(1)
    shapes = [[int(part) for part in shape.split(",")] for shape in options.shapes.split("/")]
    rules: dict[str, Acceptance] = {
        "race": Race({}),
        "rejection": Rejection({}),
        "rejection, with replacement": Rejection({"replacement": True}),
    }
    counts = {(row, name): 0 for row in range(len(shapes)) for name in rules}
    for trial in _trials(options):
        for row, shape in enumerate(shapes):
            for name, rule in rules.items():
                counts[row, name] += trial.accepted(rule, shape)
    print(f"accepted guesses a step, temperature {options.temperature:g}, {options.places} places of held-out text\n")
    print("| children by depth | nodes | " + " | ".join(rules) + " |\n|---|---|" + "---|" * len(rules))
    for row, shape in enumerate(shapes):
        cells = [f"{counts[row, name] / options.places:.3f}" for name in rules]
        print(f"| {', '.join(map(str, shape))} | {_nodes(shape)} | {' | '.join(cells)} |")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.benches.verifier.acceptance", description=__doc__)
    parser.add_argument("--target", type=Path, default=pocket.directory("target"))
    parser.add_argument("--draft", type=Path, default=pocket.directory("draft"))
    parser.add_argument("--library", type=Path, default=None, help="folder of Python source, some of it held out")
    parser.add_argument("--places", type=int, default=400)
    parser.add_argument("--context", type=int, default=192, help="tokens of text before a place")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--shapes", default=_SHAPES, help="children a node by depth, shapes parted by /")
    return parser.parse_args()


def _trials(options: argparse.Namespace) -> Iterator[Trial]:
    target, draft = (LlamaModel.load(path, dtype="float32") for path in (options.target, options.draft))
    tokenizer, dice = Tokenizer.load(options.target), random.Random(0)
    texts = [tokenizer.encode(piece.text) for piece in gather(options.library or standard_library()).heldout]
    texts = [text for text in texts if len(text) > options.context]
    most = max(_nodes([int(part) for part in shape.split(",")]) for shape in options.shapes.split("/"))
    for seed in range(options.places):
        text = dice.choices(texts, weights=[len(text) for text in texts])[0]
        start = dice.randrange(len(text) - options.context)
        before = text[start : start + options.context]
        sampling = Sampling(options.temperature, seed=seed)
        places = [Place(model, before, most) for model in (target, draft)]
        yield Trial(places[0], places[1], len(before), sampling, target.config.vocab_size)


def _nodes(shape: Sequence[int]) -> int:
    total, level = 0, 1
    for children in shape:
        level *= children
        total += level
    return total


if __name__ == "__main__":
    main()
