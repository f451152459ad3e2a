"""Tokens that truncation keeps: by definition, in torch, and in kernels that never sort."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.kernels import elementary
from outrider.kernels.race_sample import Truncation, truncate
from outrider.kernels.race_sample.logits.triton import BLOCK, scaled_logits
from outrider.kernels.race_sample.truncation import least_kept, triton
from outrider.kernels.race_sample.truncation.reference import share
from torch import Tensor

from tests.kernels.device import DEVICE, noise, poison
from tests.kernels.race_sample.drawing import NEVER, awkward_logits, of_rows, parameters


def kept_by_definition(logits: Tensor, truncation: Truncation) -> set[int]:
    """Entry after entry, in exact arithmetic over the masses of one row."""
    values = logits.tolist()
    alive = {entry for entry, value in enumerate(values) if value > NEVER}
    if 0 < truncation.top_k < len(values):
        alive = {e for e in alive if sum(values[o] > values[e] for o in alive) < truncation.top_k}
    masses = elementary.mass(logits - logits.max()).tolist()
    top_p = Fraction(float(torch.tensor(truncation.top_p)))
    if top_p < 1:
        total = sum(masses[e] for e in alive)
        alive = {e for e in alive if sum(masses[o] for o in alive if values[o] > values[e]) < top_p * total}
    return alive


@settings(max_examples=80, deadline=None)
@given(
    halves=st.lists(st.integers(-12, 12), min_size=1, max_size=20),
    top_k=st.integers(0, 22),
    top_p=st.sampled_from([0.01, 0.5, 0.75, 0.9, 0.999, 1.0]),
)
def test_top_k_and_top_p_keep_what_their_definitions_keep(halves: list[int], top_k: int, top_p: float) -> None:
    logits = torch.tensor([halves]) / 2.0
    kept = truncate(logits, Truncation(top_k=top_k, top_p=top_p))[0]
    assert set(torch.nonzero(kept > NEVER)[:, 0].tolist()) == kept_by_definition(logits[0], Truncation(top_k, top_p))


@given(total=st.integers(1, 2**58), top_p=st.floats(0, 1, width=32))
def test_a_share_of_a_mass_is_rounded_up_and_never_nothing(total: int, top_p: float) -> None:
    units = max(1, int(Fraction(top_p) * 2**24))
    expected = -(-total * units // 2**24)
    assert share(torch.tensor([total]), torch.tensor([top_p])).tolist() == [expected]


@settings(max_examples=40, deadline=None)
@given(min_p=st.floats(1e-4, 1.0), seed=st.integers(0, 1000))
def test_min_p_drops_what_is_clearly_below_and_keeps_what_is_clearly_above(min_p: float, seed: int) -> None:
    logits = noise(1, 50, seed=seed).cpu() * 3
    ratio = (logits - logits.max()).double().exp()
    kept = truncate(logits, Truncation(min_p=min_p)) > NEVER
    assert kept[ratio > min_p * (1 + 1e-5)].all()
    assert not kept[ratio < min_p * (1 - 1e-5)].any()


def test_the_likeliest_is_always_kept() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0, 2.0]])
    for truncation in (Truncation(top_k=1), Truncation(top_p=1e-9), Truncation(min_p=1.0)):
        assert (truncate(logits, truncation) > NEVER).tolist() == [[False, True, False, True]]


def test_no_order_of_summing_shows() -> None:
    logits = noise(1, 5000).cpu() * 2
    order = torch.randperm(5000, generator=torch.Generator().manual_seed(2))
    truncation = Truncation(top_p=0.93)
    assert torch.equal(truncate(logits[:, order], truncation), truncate(logits, truncation)[:, order])


def test_logits_are_divided_by_their_temperature_with_one_rounding() -> None:
    logits, draws = noise(6, 500) * 7, parameters(6, 500)
    by = torch.where(draws.temperatures > 0, draws.temperatures, 1.0)
    assert torch.equal(scaled_logits(logits, draws), logits / by[:, None])


def assert_kept_alike(logits: Tensor, *ways: str, seed: int) -> None:
    draws = parameters(*logits.shape, *ways, seed=seed)
    values = scaled_logits(logits, draws)
    poison()
    least = triton.least_kept(values, draws)
    expected = least_kept(values, draws.top_k, draws.top_p, draws.min_p)[:, 0]
    greedy = draws.temperatures == 0
    assert torch.equal(least, expected.masked_fill(greedy, NEVER))


@settings(max_examples=10, deadline=None)
@given(
    vocabulary=st.integers(1, 60),
    ways=st.lists(st.sampled_from(["top_k", "top_p", "min_p"]), min_size=1, unique=True),
    seed=st.integers(0, 10**6),
)
def test_kernels_find_the_least_kept_digit_by_digit(vocabulary: int, ways: list[str], seed: int) -> None:
    logits = awkward_logits(2, vocabulary, seed)
    logits[:, 0] = 0.0
    assert_kept_alike(logits, *ways, seed=seed)


@pytest.mark.parametrize("ways", [("top_k",), ("top_p",), ("top_k", "top_p", "min_p")])
def test_ties_and_nuclei_across_blocks_are_found(ways: tuple[str, ...]) -> None:
    assert_kept_alike(noise(2, BLOCK + 1) * 2, *ways, seed=1)
    assert_kept_alike((noise(2, 2 * BLOCK + 5) * 2).round() - 90, *ways, seed=2)


def test_zeros_of_both_signs_are_one_value() -> None:
    logits = torch.tensor([[-0.0, 0.0, -1.0, 0.0, -0.0]] * 6, device=DEVICE)
    assert_kept_alike(logits, "top_k", seed=3)
    assert_kept_alike(logits, "top_p", seed=3)


def test_a_rows_least_does_not_depend_on_the_others() -> None:
    draws = parameters(4, 700, "top_k", "top_p", seed=4)
    values = scaled_logits(noise(4, 700), draws)
    together = triton.least_kept(values, draws)
    for order in ([3], [2, 0, 1]):
        assert torch.equal(triton.least_kept(values[order], of_rows(draws, order)), together[order])
