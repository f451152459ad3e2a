"""What `DrafterPolicy` loses against the best fixed choice, on a simulated machine whose speed drifts and jumps."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import pytest
from outrider.engine.speculation.policy.budget import Pace
from outrider.engine.speculation.policy.drafter_policy import DrafterPolicy, DrafterStep, StepPrices

_GUESSES = 3
_PAYS = 0.4
"""Mean accepted guesses of three above which they pay for their rows; a step buys no others."""


@dataclass(frozen=True)
class Guesser:
    """Mean number of accepted guesses of a sequence, and seconds of drafting; a plain step takes 1 second."""

    right: float
    drafting: float


class Machine:
    """Steps of ``sequences`` sequences: at times twice as slow, and one in fifty five times as slow."""

    def __init__(self, sequences: int, seed: int) -> None:
        self.sequences, self.clock = sequences, 0.0
        self._dice = random.Random(seed)

    def slowness(self) -> float:
        drift = 1.5 + 0.5 * math.sin(self.clock / 400)
        return drift * self._dice.uniform(0.9, 1.1) * (5 if self._dice.random() < 0.02 else 1)

    def right(self, mean: float) -> int:
        """Number of accepted guesses over all sequences, each with a chain of up to three."""
        chance = mean / (1 + mean)
        return sum(
            next((hit for hit in range(_GUESSES) if self._dice.random() > chance), _GUESSES)
            for _ in range(self.sequences)
        )


def seconds(guessers: dict[str, Guesser], asked: set[str], guesses: int) -> tuple[float, float]:
    """Seconds of a step on an idle machine, and of its drafting; guesses take more than the curve says."""
    drafting = sum(guessers[name].drafting for name in asked)
    return (1.2 * (1 + 0.1 * guesses) if guesses else 1.0), drafting


def speed(guessers: dict[str, Guesser], asked: set[str] | None, sequences: int, steps: int = 20_000) -> float:
    """Tokens for a second at rest, of the drafters ``asked``, or of those that `DrafterPolicy` chooses if None."""
    machine, policy, pace = Machine(sequences, seed=7), DrafterPolicy(), Pace()
    size, tokens, total = sequences.bit_length(), 0, 0.0
    for _ in range(steps):
        chosen = guessers.keys() - policy.paused(size, guessers.keys()) if asked is None else asked
        bought = [name for name in sorted(chosen) if guessers[name].right > _PAYS]
        rights = {name: machine.right(guessers[name].right) for name in bought}
        guesses = _GUESSES * len(bought)
        alone, drafting = seconds(guessers, set(chosen), guesses)
        slow = machine.slowness()
        machine.clock += (alone + drafting) * slow
        tokens, total = tokens + sequences + sum(rights.values()), total + alone + drafting
        curve = 1 + 0.1 * guesses
        pace.learn(size, curve, alone * slow)
        plain, row = pace(size), (curve - 1) * pace(size) / max(guesses, 1)
        prices = StepPrices(plain / sequences, row, (alone + drafting) * slow)
        waits = {name: guessers[name].drafting * slow for name in chosen}
        done = {name: DrafterStep(_GUESSES * (name in rights), rights.get(name, 0), waits[name]) for name in chosen}
        policy.step(size, done, prices, others=False)
    return tokens / total


GOOD, BAD, DEAR = Guesser(1.5, 0.05), Guesser(0.1, 0.02), Guesser(0.5, 0.9)


@pytest.mark.parametrize("sequences", [1, 8])
def test_drafters_that_do_not_pay_cost_little_beside_plain_decoding(sequences: int) -> None:
    guessers = {"bad": BAD, "dear": DEAR}
    if sequences == 8:
        guessers = {"bad": Guesser(0.01, 0.02), "dear": Guesser(0.05, 0.9)}
    assert speed(guessers, None, sequences) > 0.98 * speed(guessers, set(), sequences)


def test_a_drafter_that_pays_is_asked_whatever_others_do() -> None:
    guessers = {"good": GOOD, "bad": BAD, "dear": DEAR}
    best = speed(guessers, {"good"}, 1)
    assert best > 1.3 * speed(guessers, set(), 1)
    assert speed(guessers, None, 1) > 0.97 * best
