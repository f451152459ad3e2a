"""The sampler's law: what the verifier says has the target's distribution, by enumeration, and wrong rules do not."""

from __future__ import annotations

from collections import Counter

import pytest
from outrider.kernels.race_sample import Truncation
from outrider.models.sampling import Sampling
from outrider.verifier.acceptance.accept import Accepted, walk
from outrider.verifier.decode import commits
from outrider.verifier.decode import runner as runner_module
from outrider.verifier.decode.engine import Engine
from outrider.verifier.requests.sequence import Request
from torch import Tensor

from tests.verifier.drafters import EverythingDrafter
from tests.verifier.engines import MakeEngine
from tests.verifier.laws import DRAWS, PROMPT, TEMPERATURE, VOCABULARY, answers, chi_square, exact_law


def drawn(engine: Engine, truncation: Truncation) -> Counter[tuple[int, ...]]:
    """What the verifier says for many seeds."""
    dice = [Sampling(TEMPERATURE, truncation, seed * 7919) for seed in range(DRAWS)]
    return answers(engine, [Request(f"r{seed}", "t", PROMPT, each, max_tokens=3) for seed, each in enumerate(dice)])


def follows_the_law(engine: Engine, truncation: Truncation = Truncation()) -> bool:  # noqa: B008 - it is immutable
    statistic, degrees = chi_square(exact_law(engine, truncation), drawn(engine, truncation))
    return statistic < degrees + 5 * (2 * degrees) ** 0.5


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_three_tokens_have_the_targets_joint_distribution(make_engine: MakeEngine, depth: int) -> None:
    drafters = [EverythingDrafter(VOCABULARY, depth)] if depth else []
    assert follows_the_law(make_engine(VOCABULARY, drafters))


def test_truncated_distributions_are_followed_too(make_engine: MakeEngine) -> None:
    engine = make_engine(VOCABULARY, [EverythingDrafter(VOCABULARY, 2)])
    assert follows_the_law(engine, Truncation(top_k=3, top_p=0.9, min_p=0.02))


def test_dice_used_twice_break_the_law(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    right = runner_module.race

    def same_dice(logits: Tensor, seeds: list[int], positions: list[int], heats: list[float]) -> list[int] | None:
        return right(logits, seeds, [len(PROMPT)] * len(positions), heats)

    monkeypatch.setattr(runner_module, "race", same_dice)
    assert not follows_the_law(make_engine(VOCABULARY, [EverythingDrafter(VOCABULARY, 2)]))


def test_a_temperature_missing_at_guessed_nodes_breaks_the_law(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = runner_module.race

    def half_warm(logits: Tensor, seeds: list[int], positions: list[int], heats: list[float]) -> list[int] | None:
        warm = [1.0 if place > len(PROMPT) else heat for place, heat in zip(positions, heats, strict=True)]
        return right(logits, seeds, positions, warm)

    monkeypatch.setattr(runner_module, "race", half_warm)
    assert not follows_the_law(make_engine(VOCABULARY, [EverythingDrafter(VOCABULARY, 2)]))


def test_taking_the_drafters_word_breaks_the_law(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def credulous(guesses: list[int], parents: list[int], drawn: list[int]) -> Accepted:
        if not guesses:
            return walk(guesses, parents, drawn)
        return Accepted([0, 1], [guesses[0], drawn[1]])

    monkeypatch.setattr(commits, "walk", credulous)
    assert not follows_the_law(make_engine(VOCABULARY, [EverythingDrafter(VOCABULARY, 2)]))


def test_reading_the_row_before_breaks_the_law(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(guesses: list[int], parents: list[int], drawn: list[int]) -> Accepted:
        right = walk(guesses, parents, drawn)
        return Accepted(right.rows, [*right.tokens[:-1], drawn[max(right.rows[-1] - 1, 0)]])

    monkeypatch.setattr(commits, "walk", shifted)
    assert not follows_the_law(make_engine(VOCABULARY, [EverythingDrafter(VOCABULARY, 2)]))
