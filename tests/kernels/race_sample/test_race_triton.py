"""The fused draw gives its definition's tokens, whatever a row's parameters and the other rows are."""

from __future__ import annotations

import pytest
import torch
import triton as compiler
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.kernels.launch import Config, launch
from outrider.kernels.philox import log_exponentials
from outrider.kernels.race_sample import (
    Draws,
    Penalties,
    Truncation,
    race_sample,
    reference,
    triton,
    truncate,
)
from outrider.kernels.race_sample.logits.triton import BLOCK
from torch import Tensor

from tests.kernels.device import DEVICE, DTYPES, noise, poison
from tests.kernels.race_sample.drawing import NEVER, awkward_logits, draws_like, of_rows, parameters

_SMALL = st.integers(1, 70)
_WAYS = [(), ("allowed",), ("penalties",), ("penalties", "allowed"), ("top_k",), ("top_p", "allowed"), ("min_p",)]
_ALL = ("allowed", "top_k", "top_p", "min_p", "penalties")


def assert_draws_alike(logits: Tensor, draws: Draws) -> None:
    poison()
    drawn, expected = triton.draw(logits, draws), reference.draw(logits, draws)
    assert drawn.dtype == torch.int32
    assert torch.equal(drawn, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=12, deadline=None)
@given(rows=st.integers(0, 3), vocabulary=_SMALL, ways=st.sampled_from(_WAYS[:4]), seed=st.integers(0, 10**6))
def test_it_draws_what_its_definition_draws(
    rows: int, vocabulary: int, ways: tuple[str, ...], seed: int, dtype: torch.dtype
) -> None:
    logits = awkward_logits(rows, vocabulary, seed, dtype)
    assert_draws_alike(logits, parameters(rows, vocabulary, *ways, seed=seed))


@settings(max_examples=8, deadline=None)
@given(vocabulary=_SMALL, ways=st.sampled_from([*_WAYS[4:], _ALL]), seed=st.integers(0, 10**6))
def test_it_draws_among_what_truncation_leaves(vocabulary: int, ways: tuple[str, ...], seed: int) -> None:
    assert_draws_alike(awkward_logits(2, vocabulary, seed), parameters(2, vocabulary, *ways, seed=seed))


@pytest.mark.parametrize("vocabulary", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 77])
def test_blocks_of_the_vocabulary_make_one_race(vocabulary: int) -> None:
    assert_draws_alike(noise(4, vocabulary) * 3, parameters(4, vocabulary, seed=vocabulary))
    draws = parameters(2, vocabulary, *_ALL, seed=vocabulary)
    assert_draws_alike(awkward_logits(2, vocabulary, 1), draws)


def test_it_is_the_race_of_shaped_logits_and_the_seeds_variates() -> None:
    logits, seed, position = noise(1, 300) * 2, 2**63 + 12345, 2**32 - 1
    shaped = truncate(logits.cpu() / 0.8, Truncation(top_k=40, top_p=0.9, min_p=0.02))
    expected = race_sample(shaped, log_exponentials(seed, torch.tensor([position]), 300))
    draws = Draws(
        torch.tensor([seed - 2**64], device=DEVICE),
        torch.tensor([position], device=DEVICE),
        torch.tensor([0.8], device=DEVICE),
        torch.tensor([40], dtype=torch.int32, device=DEVICE),
        torch.tensor([0.9], device=DEVICE),
        torch.tensor([0.02], device=DEVICE),
    )
    assert triton.draw(logits, draws).tolist() == expected.tolist()


@pytest.mark.parametrize("temperature", [0.0, 1e-4, 1.0])
def test_ties_go_to_the_lowest_entry_across_blocks(temperature: float) -> None:
    logits = torch.full((3, 2 * BLOCK + 9), NEVER, device=DEVICE)
    logits[0, [5, BLOCK - 1, BLOCK, 2 * BLOCK + 8]] = 1e12
    logits[1, [BLOCK, BLOCK + 7]] = 1e12
    logits[2, [2 * BLOCK + 8, 2 * BLOCK]] = 1e12
    assert triton.draw(logits, draws_like(3, temperature)).tolist() == [5, BLOCK, 2 * BLOCK]


@pytest.mark.parametrize("temperature", [1e-4, 50.0])
def test_extreme_temperatures_are_drawn_at(temperature: float) -> None:
    logits = noise(3, BLOCK + 100) * 5
    drawn = triton.draw(logits, draws_like(3, temperature))
    assert torch.equal(drawn, reference.draw(logits, draws_like(3, temperature)))
    assert torch.equal(drawn.long(), logits.argmax(-1)) == (temperature < 1)


def test_a_row_from_which_nothing_can_be_drawn_says_so_and_harms_no_other() -> None:
    logits = noise(7, BLOCK + 30)
    logits[1, BLOCK + 2] = float("nan")
    logits[2] = NEVER
    logits[3, 9] = float("inf")
    logits[4] = float("nan")
    logits[4, 0] = 1e30
    allowed = torch.full((7, -(-logits.shape[1] // 32)), -1, dtype=torch.int32, device=DEVICE)
    allowed[5] = 0
    allowed[5, -1] = -(2**31)
    for more in ({}, {"top_p": torch.full((7,), 0.9, device=DEVICE)}):
        draws = draws_like(7, 0.9, allowed=allowed, **more)
        assert_draws_alike(logits, draws)
        drawn = triton.draw(logits, draws)
        assert [token < 0 for token in drawn.tolist()] == [False, True, True, True, True, True, False]


def test_a_rows_answer_does_not_depend_on_the_others() -> None:
    logits, draws = awkward_logits(4, 600, 3), parameters(4, 600, *_ALL, seed=5)
    together = triton.draw(logits, draws)
    for order in ([2], [3, 1, 0, 2], [1, 1, 3]):
        some = triton.draw(logits[order], of_rows(draws, order))
        assert torch.equal(some, together[order])


def test_penalties_divide_what_is_above_zero_multiply_what_is_not_and_add() -> None:
    lists = Penalties(
        torch.tensor([0, 2, 2], dtype=torch.int32, device=DEVICE),
        torch.tensor([2, 0], dtype=torch.int32, device=DEVICE),
        torch.tensor([2.0, 2.0], device=DEVICE),
        torch.tensor([0.0, 0.5], device=DEVICE),
    )
    logits = torch.tensor([[-1.0, -1.75, 3.0, 1.0], [-1.0, -1.75, 3.0, 1.0]], device=DEVICE)
    drawn = triton.draw(logits, draws_like(2, 0.0, penalties=lists))
    assert drawn.tolist() == [2, 2]
    lists.biases[0] = -0.75
    assert triton.draw(logits, draws_like(2, 0.0, penalties=lists)).tolist() == [3, 2]
    logits[:, 2:] = NEVER
    assert triton.draw(logits, draws_like(2, 0.0, penalties=lists)).tolist() == [0, 0]
    lists.biases[1] = 0.1875
    assert triton.draw(logits, draws_like(2, 0.0, penalties=lists)).tolist() == [1, 0]


def test_rows_may_lie_apart() -> None:
    wide = noise(3, 500)
    assert torch.equal(
        triton.draw(wide[:, 20:333], draws_like(3, 1.0)),
        triton.draw(wide[:, 20:333].contiguous(), draws_like(3, 1.0)),
    )


@compiler.jit(do_not_specialize=["count"])
def _bounds(logits, drawn, temperature, bounds, scores, count, block: tl.constexpr):
    places = tl.program_id(0) * block + tl.arange(0, block)
    inside = places < count
    logit = tl.load(logits + places, inside, other=0.0)
    word = tl.load(drawn + places, inside, other=0).to(tl.uint32)
    by = tl.load(temperature)
    factor = 1.0 / by
    tl.store(bounds + places, triton.upper_bound(logit, factor * triton.LESS, factor * triton.MORE, word), inside)
    tl.store(scores + places, tl.math.div_rn(logit, by) - triton.log_exponential(word), inside)


@pytest.mark.parametrize("temperature", [1e-6, 1e-4, 0.3, 1.0, 50.0])
def test_no_score_is_above_its_bound(temperature: float) -> None:
    words = torch.cat([torch.arange(0, 2000), 2**31 + torch.arange(-500, 500), 2**32 - 1 - torch.arange(0, 2000)])
    words = torch.cat([words, torch.tensor([1 << bit for bit in range(32)]), (noise(9000).cpu().abs() * 2**29).long()])
    words = words.clamp(max=2**32 - 1).to(DEVICE)
    logits = noise(len(words), seed=2) * torch.logspace(-3, 6, len(words), device=DEVICE)
    bounds, scores = torch.empty_like(logits), torch.empty_like(logits)
    args = {"logits": logits, "drawn": words, "temperature": torch.tensor([temperature], device=DEVICE)}
    out = {"bounds": bounds, "scores": scores, "count": len(words)}
    launch(_bounds, (-(-len(words) // BLOCK),), args | out, {"block": BLOCK}, Config(fused=False))
    assert (bounds >= scores).all()


@pytest.mark.parametrize("run", [triton.draw, reference.draw])
def test_parameters_that_do_not_fit_are_refused(run) -> None:
    logits = noise(2, 40)
    with pytest.raises(ValueError, match="seeds"):
        run(logits, draws_like(3, 1.0))
    with pytest.raises(ValueError, match="allowed"):
        run(logits, draws_like(2, 1.0, allowed=torch.zeros(2, 1, dtype=torch.int32, device=DEVICE)))
    with pytest.raises(ValueError, match="logits"):
        run(logits.long(), draws_like(2, 1.0))
    with pytest.raises(ValueError, match="top_p"):
        run(logits, draws_like(2, 1.0, top_p=torch.ones(2, dtype=torch.float64, device=DEVICE)))
