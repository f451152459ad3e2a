"""The observer of the experiment: what tells prompts apart, and what does not."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from outrider.loadtest.experiments.fingerprint import VIEWS, Trace, judge

PROMPTS = 20


def traces(size: Callable[[random.Random], int], pause: Callable[[random.Random], float]) -> list[Trace]:
    """Streams of 30 pieces that depend on the prompt alone, as far as they depend on anything."""
    made = []
    for prompt in range(PROMPTS):
        for round_ in range(6):
            dice = random.Random(prompt)
            sizes, pauses = [size(dice) for _ in range(30)], [pause(dice) for _ in range(30)]
            times = [
                sum(pauses[: place + 1]) + random.Random(round_ * 31 + prompt).random() / 1e3 for place in range(30)
            ]
            made.append(Trace(prompt, "plain", round_, sizes, times, 60, times[-1]))
    return made


def test_sizes_of_texts_tell_prompts_apart() -> None:
    seen = judge(traces(lambda dice: 300 + dice.randrange(20), lambda dice: 0.03), "plain").accuracy
    assert seen["sizes"] == seen["all"] == 1
    assert seen["text"] > 0.5
    assert seen["times"] < 0.2


def test_times_of_steps_tell_prompts_apart() -> None:
    seen = judge(traces(lambda dice: 1024, lambda dice: dice.choice([0.03, 0.05])), "plain").accuracy
    assert seen["times"] > 0.9
    assert seen["sizes"] == pytest.approx(1 / PROMPTS)


def test_equal_cells_at_equal_times_tell_nothing() -> None:
    seen = judge(traces(lambda dice: 1024, lambda dice: 0.05), "plain").accuracy
    assert max(seen[view] for view in VIEWS) < 0.2
