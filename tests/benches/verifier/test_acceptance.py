"""The comparison of rules: all guesses are accepted if the draft model is the target, else not."""

from __future__ import annotations

from pathlib import Path

import pytest
from outrider.benches.verifier.acceptance import Place, Trial
from outrider.engine.models.llama import LlamaModel
from outrider.engine.sampling import Sampling
from outrider.engine.speculation import Acceptance
from outrider.engine.speculation.acceptance.accept import Race
from outrider.engine.speculation.acceptance.rejection import Rejection

from tests.toy_model import save_toy

TEXT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8]


def accepted(target: LlamaModel, draft: LlamaModel, rule: Acceptance, shape: list[int]) -> list[int]:
    return [
        Trial(Place(target, TEXT, 40), Place(draft, TEXT, 40), len(TEXT), Sampling(1.0, seed=seed), 50).accepted(
            rule, shape
        )
        for seed in range(12)
    ]


@pytest.mark.parametrize("rule", [Race({}), Rejection({}), Rejection({"replacement": True})])
@pytest.mark.parametrize("shape", [[1, 1, 1], [3, 2], [2, 1, 2]])
def test_guesses_of_the_target_itself_are_all_accepted(tmp_path: Path, rule: Acceptance, shape: list[int]) -> None:
    toy = LlamaModel.load(save_toy(tmp_path / "toy", 50), dtype="float32")
    other = LlamaModel.load(save_toy(tmp_path / "other", 50, seed=4), dtype="float32")
    assert accepted(toy, toy, rule, shape) == [len(shape)] * 12
    assert sum(accepted(toy, other, rule, shape)) < 12 * len(shape)
