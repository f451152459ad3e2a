"""Philox, its logarithms and the elementary functions: the same bits in torch, numpy and Triton."""

from __future__ import annotations

import pytest
import torch
import triton as compiler
import triton.language as tl
from hypothesis import example, given, settings
from hypothesis import strategies as st
from outrider.kernels import elementary
from outrider.kernels.elementary import triton as kernels
from outrider.kernels.launch import Config, launch
from outrider.kernels.philox import log_exponentials, philox_4x32, reference, triton
from torch import Tensor

from tests.kernels.device import DEVICE, poison

_BLOCK = 4096
_CENTRES = [0, 2**8, 2**23, 2**24, 2**25, 2**30, 2**31, 2**31 + 2**30, 2**32 - 2**9, 2**32 - 1]


def edge_words() -> Tensor:
    near = torch.cat([centre + torch.arange(-300, 301) for centre in _CENTRES])
    anywhere = torch.randint(0, 2**32, (30_000,), generator=torch.Generator().manual_seed(1))
    return torch.cat([near[(near >= 0) & (near < 2**32)], anywhere])


@compiler.jit(do_not_specialize=["count"])
def _of_words(words, out, count, block: tl.constexpr):
    places = tl.program_id(0) * block + tl.arange(0, block)
    drawn = tl.load(words + places, places < count, other=0).to(tl.uint32)
    tl.store(out + places, triton.log_exponential(drawn), places < count)


@compiler.jit(do_not_specialize=["count"])
def _functions(x, logs, exps, masses, count, block: tl.constexpr):
    places = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(x + places, places < count, other=1.0)
    tl.store(logs + places, kernels.log(value), places < count)
    tl.store(exps + places, kernels.exp(-value), places < count)
    tl.store(masses + places, kernels.mass(-value), places < count)


def test_the_variate_of_a_word_has_the_same_bits_in_a_kernel_and_is_finite() -> None:
    words = edge_words()
    out = torch.full((len(words),), float("nan"), device=DEVICE)
    args = {"words": words.to(DEVICE), "out": out, "count": len(words)}
    launch(_of_words, (-(-len(words) // _BLOCK),), args, {"block": _BLOCK}, Config(fused=False))
    expected = reference.log_exponential(words.to(torch.float32))
    assert torch.equal(out.cpu().view(torch.int32), expected.view(torch.int32))
    assert torch.isfinite(out).all()


def test_the_variate_of_a_word_is_within_a_few_ulp() -> None:
    words = edge_words()
    uniform = words.to(torch.float32).add(0.5).mul(2.0**-32).clamp(max=1 - 2.0**-24).double()
    exact = torch.log(-torch.log1p(-uniform))
    error = (reference.log_exponential(words.to(torch.float32)).double() - exact).abs()
    assert (error <= 4 * 2.0**-23 * exact.abs().clamp(min=1.0)).all()


def test_elementary_functions_have_the_same_bits_in_a_kernel() -> None:
    x = torch.cat([torch.logspace(-30, 30, 20_001), torch.linspace(1e-3, 62, 20_001), torch.tensor([0.75, 1.0, 1.5])])
    outs = [torch.empty(len(x), dtype=d, device=DEVICE) for d in (torch.float32, torch.float32, torch.int64)]
    args = {"x": x.to(DEVICE), "logs": outs[0], "exps": outs[1], "masses": outs[2], "count": len(x)}
    launch(_functions, (-(-len(x) // _BLOCK),), args, {"block": _BLOCK}, Config(fused=False))
    for out, expected in zip(outs, (elementary.log(x), elementary.exp(-x), elementary.mass(-x)), strict=True):
        assert torch.equal(out.cpu(), expected)


def test_elementary_functions_are_within_two_ulp() -> None:
    x = torch.linspace(1e-3, 59.9, 100_001)
    exact = torch.exp(-x.double())
    assert ((elementary.exp(-x).double() / exact - 1).abs() < 2.0**-22).all()
    exact = torch.log(x.double())
    assert ((elementary.log(x).double() - exact).abs() <= 2.0**-22 * exact.abs().clamp(min=0.5)).all()
    uniform = torch.logspace(-30, 0, 100_001, base=2)[:-1]
    exact = torch.log1p(-uniform.double())
    assert ((elementary.log_complement(uniform).double() / exact - 1).abs() < 2.0**-21).all()


def test_mass_is_fixed_point_and_vanishes_far_below() -> None:
    masses = elementary.mass(torch.tensor([0.0, -0.0, -28.0, -1e30, float("-inf")]))
    assert masses.tolist() == [2**elementary.MASS_BITS, 2**elementary.MASS_BITS, 0, 0, 0]


@settings(max_examples=15, deadline=None)
@given(
    seeds=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4),
    position=st.integers(0, 2**32 - 4),
    vocabulary=st.integers(1, 2100),
)
@example(seeds=[2**64 - 1, 0], position=2**32 - 4, vocabulary=1)
@example(seeds=[2**63, 2**63], position=0, vocabulary=4097)
def test_variates_have_the_same_bits_everywhere(seeds: list[int], position: int, vocabulary: int) -> None:
    keys = torch.tensor([seed - (seed >> 63 << 64) for seed in seeds])
    positions = position + torch.arange(len(seeds))
    poison()
    drawn = triton.log_exponentials(keys.to(DEVICE), positions.to(DEVICE), vocabulary).cpu()
    assert torch.equal(drawn, reference.log_exponentials(keys, positions, vocabulary))
    for row, seed in enumerate(seeds):
        assert torch.equal(drawn[row : row + 1], log_exponentials(seed, positions[row : row + 1], vocabulary))


def test_a_long_vocabulary_is_taken_in_pieces() -> None:
    keys, positions = torch.tensor([3, -4]), torch.tensor([9, 2**31])
    expected = reference.log_exponentials(keys, positions, 70_003)
    assert torch.equal(log_exponentials(keys, positions, 70_003), expected)


def test_words_are_those_of_the_published_generator() -> None:
    zero = torch.tensor([0])
    words = philox_4x32((zero, zero, zero, zero), (zero, zero))
    expected = reference.log_exponential(torch.cat(words).to(torch.float32))
    assert [int(word) for word in words] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert torch.equal(triton.log_exponentials(zero.to(DEVICE), zero.to(DEVICE), 4).cpu()[0], expected)


def test_seeds_of_another_kind_are_refused() -> None:
    zero = torch.zeros(2, dtype=torch.int64, device=DEVICE)
    with pytest.raises(ValueError, match="seeds"):
        triton.log_exponentials(zero.int(), zero, 5)
    with pytest.raises(ValueError, match=r"must be contiguous int64 \[n\]"):
        triton.log_exponentials(zero[:1], zero, 5)
