"""Suffix guesses of the compiled library equal those in plain Python, for many random sequences."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.engine.speculation.drafters.plain_suffixes import PlainSuffixes
from outrider.native.library import library
from outrider.native.suffixes import NativeSuffixes, SuffixShape
from outrider.native.trees import NativeTree

TENANTS = ("", "red", "red\0", "blue", "größer")


class Both:
    """The same happens to both, and both have to say the same."""

    def __init__(self, shape: SuffixShape) -> None:
        self._made = (NativeSuffixes(shape, library()), PlainSuffixes(shape))

    def open(self, number: int, tokens: list[int], prompt: int, tenant: str, most: int) -> None:
        for made in self._made:
            made.open(number, tokens, prompt, tenant, most)

    def commit(self, number: int, tokens: list[int]) -> None:
        for made in self._made:
            made.commit(number, tokens)

    def close(self, number: int) -> None:
        for made in self._made:
            made.close(number)

    def forget(self, tenant: str) -> None:
        for made in self._made:
            made.forget(tenant)

    def draft(self) -> list[NativeTree]:
        ours, theirs = (made.draft() for made in self._made)
        assert ours == theirs
        return ours


NUMBERS, COUNTS = st.integers(0, 5), st.integers(1, 130)
SHAPES = st.builds(SuffixShape, st.integers(1, 20), st.integers(1, 3), COUNTS, st.integers(1, 3))
TOKENS = st.integers(0, 1) | st.integers(0, 4) | st.integers(0, 900)
RUNS = st.lists(TOKENS, max_size=40)
ACTIONS = st.one_of(
    st.tuples(st.just("open"), NUMBERS, RUNS, st.integers(0, 40), st.sampled_from(TENANTS), st.integers(-1, 20)),
    st.tuples(st.just("commit"), NUMBERS, st.lists(TOKENS, max_size=5)),
    st.tuples(st.just("commit"), NUMBERS, RUNS),
    st.tuples(st.just("draft")),
    st.tuples(st.just("close"), NUMBERS),
    st.tuples(st.just("forget"), st.sampled_from(TENANTS)),
)


@settings(max_examples=250, deadline=None)
@given(SHAPES, st.lists(ACTIONS, min_size=5, max_size=80))
def test_the_compiled_guesses_are_the_plain_ones(shape: SuffixShape, actions: list[tuple[Any, ...]]) -> None:
    both = Both(shape)
    for name, *arguments in actions:
        getattr(both, name)(*arguments)
    both.draft()


def text(dice: random.Random, size: int, alphabet: int) -> list[int]:
    """Tokens of which about half repeat earlier runs; now and then one token repeats for a while."""
    made = [dice.randrange(alphabet) for _ in range(8)]
    while len(made) < size:
        made += made[-1:] * (30 if dice.random() < 0.02 else 0)
        at = dice.randrange(len(made))
        made += made[at : at + dice.randint(2, 12)] if dice.random() < 0.5 else [dice.randrange(alphabet)]
    return made[:size]


@pytest.mark.parametrize("alphabet", [2, 7, 300, 20000])
def test_long_sequences_of_many_tenants_are_guessed_at_alike(alphabet: int) -> None:
    both, dice = Both(SuffixShape(tokens=900, tenants=2)), random.Random(alphabet)
    texts = {number: text(dice, 1500, alphabet) for number in range(8)}
    ends, guessed = dict.fromkeys(texts, 0), 0
    for _ in range(800):
        number = dice.randrange(8)
        if ends[number] == 0:
            ends[number] = dice.choice([1, 20, 1300])
            opened = texts[number][: ends[number]]
            both.open(number, opened, dice.randint(0, ends[number]), TENANTS[number % 3], 16)
        elif dice.random() < 0.05 or ends[number] > 1480:
            both.close(number)
            ends[number] = 0
        else:
            more = dice.choice([1, 1, 2, 5, 30])
            both.commit(number, texts[number][ends[number] : ends[number] + more])
            ends[number] += len(texts[number][ends[number] : ends[number] + more])
        guessed += sum(len(tree.tokens) for tree in both.draft())
    assert guessed > 1000


def test_memory_is_bounded_by_the_remembered_tokens() -> None:
    made, dice = NativeSuffixes(SuffixShape(tokens=512, tenants=3), library()), random.Random(0)
    sizes = []
    for number in range(60):
        tokens = text(dice, 400, 50)
        made.open(number, tokens, 0, str(number % 7), 16)
        made.close(number)
        made.draft()
        sizes.append(made.bytes)
    assert max(sizes) == pytest.approx(max(sizes[:20]), rel=0.2)
    assert max(sizes) < 3 * 512 * 150


def test_a_forgotten_tenant_takes_no_memory_and_teaches_nobody() -> None:
    made, dice = NativeSuffixes(SuffixShape(), library()), random.Random(0)
    learnt = text(dice, 400, 50)
    for tenant in ("gone", "stays"):
        made.open(1, learnt, 0, tenant, 16)
        made.close(1)
        made.draft()
    made.open(2, learnt, 0, "gone", 16)
    before = made.bytes
    made.forget("gone")
    assert made.bytes < 0.6 * before
    for number, tenant in ((3, "gone"), (4, "stays")):
        made.open(number, learnt[200:203], 0, tenant, 16)
    assert [tree.number for tree in made.draft() if len(tree.tokens) > 3] == [4]
