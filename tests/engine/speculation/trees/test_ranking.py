"""Guesses of many sequences are ranked at a time, as each would be alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from outrider.engine.sampling import Dice, Sampling
from outrider.engine.speculation import DrafterContext, Opening
from outrider.engine.speculation.drafters.model_drafter import ModelDrafter
from outrider.engine.speculation.trees.ranking import Guesses, Rows, rank
from outrider.engine.text import Tokenizer
from outrider.kernels.race_sample import Truncation
from torch.utils._python_dispatch import TorchDispatchMode

from tests.kernels.choosing import kernels
from tests.toy_model import save_toy

VOCABULARY = 150
SAMPLINGS = (
    Sampling(0.0),
    Sampling(0.7, Truncation(top_k=20), 5),
    Sampling(0.0, Truncation(top_p=0.5), 9),
    Sampling(0.7, Truncation(top_k=20), 6),
    Sampling(1.3, seed=5),
)


class Counted(TorchDispatchMode):
    """Counts operators, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.calls[func.__name__.split(".")[0]] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "targets", [None, torch.randperm(400, generator=torch.Generator().manual_seed(4))[:VOCABULARY].sort().values]
)
@pytest.mark.parametrize("kind", ["auto", "torch"])
def test_sequences_together_are_ranked_as_each_alone(targets: torch.Tensor | None, kind: str) -> None:
    scores = torch.randn(15, VOCABULARY, generator=torch.Generator().manual_seed(3)) * 3
    size = VOCABULARY if targets is None else 400
    parts = [
        Rows(sampling, None if sampling.greedy else Dice(sampling.seed, size), range(7 + place, 10 + place))
        for place, sampling in enumerate(SAMPLINGS)
    ]
    with kernels("torch"):
        plain = rank(parts, scores, 4, targets)
    with kernels(kind):
        _check(rank(parts, scores, 4, targets), plain, parts, scores, targets)


def _check(
    together: list[list[Guesses]],
    plain: list[list[Guesses]],
    parts: list[Rows],
    scores: torch.Tensor,
    targets: torch.Tensor | None,
) -> None:
    rows = [(mine, theirs) for both in zip(together, plain, strict=True) for mine, theirs in zip(*both, strict=True)]
    for found, wanted in rows:
        assert found[0] == wanted[0]
        assert found[1] == pytest.approx(wanted[1], rel=1e-4)
    size = VOCABULARY if targets is None else 400
    assert together == [rank([part], scores[3 * i : 3 * i + 3], 4, targets)[0] for i, part in enumerate(parts)]
    assert together[0] != together[2]
    noise = Dice(SAMPLINGS[4].seed, size).at(11)
    raced = scores[12] / SAMPLINGS[4].temperature - (noise if targets is None else noise[targets])
    best = raced.argsort(descending=True)[:4]
    assert together[4][0][0] == (best if targets is None else targets[best]).tolist()
    greedy = scores[0].argsort(descending=True)[:4]
    assert together[0][0][0] == (greedy if targets is None else targets[greedy]).tolist()


def test_a_level_of_trees_costs_one_product_and_one_top_k_for_all_sequences(tmp_path: Path) -> None:
    directory = save_toy(tmp_path / "toy", VOCABULARY)
    with kernels("torch"):
        fingerprint = Tokenizer.load(directory).fingerprint
        made = ModelDrafter(DrafterContext(fingerprint, VOCABULARY, 256, directory, dtype="float32"))
        counts = []
        for sessions in (1, 5):
            for session in range(sessions):
                made.open(session, Opening([session + 3, 4, 5], SAMPLINGS[session], 31))
            for _ in range(2):  # the prompts, and a first level
                with Counted() as counted:
                    made.draft()
            counts.append([counted.calls[name] for name in ("mm", "topk", "logsumexp")])
    assert counts[0] == counts[1]
    assert counts[0][1:] == [1, 1]
