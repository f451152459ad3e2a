"""Matmuls with the weights of quantized checkpoints, against those with dequantized weights."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.kernels.linear import pack_quantized, reference, triton
from outrider.kernels.linear.quantized_packing import pack_quantized as pack_words
from outrider.native.quantized import UNIT_GROUP, QuantFormat, Quants, QuantsInMemory, dequantized
from torch import Tensor

from tests.kernels.device import DEVICE, DTYPES, noise, poison, tolerance

WHOLE = 0
"""Stands for a group of all input features."""
FORMATS = {
    "Q4_0": QuantFormat(4, 32, 8),
    "4 bits, groups of 96": QuantFormat(4, 96, 8),
    "4 bits, groups of 256": QuantFormat(4, 256, 8),
    "4 bits, whole rows": QuantFormat(4, WHOLE, 8),
    "4 bits with zero points, groups of 64": QuantFormat(4, 64, has_minima=True),
    "4 bits with zero points, whole rows": QuantFormat(4, WHOLE, has_minima=True),
    "Q4_1": QuantFormat(4, 32, has_minima=True),
    "Q4_K": QuantFormat(4, 32, has_minima=True, has_units=True),
    "Q5_0": QuantFormat(5, 32, 16),
    "Q5_K": QuantFormat(5, 32, has_minima=True, has_units=True),
    "Q6_K": QuantFormat(6, 16, 32, has_units=True),
    "Q8_0": QuantFormat(8, 32, 128),
    "8 bits, whole rows": QuantFormat(8, WHOLE, 128),
    "8 bits with zero points, groups of 64": QuantFormat(8, 64, has_minima=True),
    "8 bits with zero points, whole rows": QuantFormat(8, WHOLE, has_minima=True),
}
WITH_ZEROS = [name for name in FORMATS if "zero points" in name]


def random(name: str, outer: int, groups: int, seed: int = 0) -> QuantsInMemory:
    """Random quants of a format: at least so many groups, and whole units."""
    form = FORMATS[name]
    inner = groups * (UNIT_GROUP if form.has_units else form.group or 32)
    group = form.group or inner
    chance = torch.Generator().manual_seed(seed)
    quants = torch.randint(2**form.bits, (outer, inner), generator=chance).to(torch.uint8)
    form = QuantFormat(form.bits, group, form.zero, form.has_minima, form.has_units)
    shape = outer, inner // group
    size = inner**-0.5 / 2 ** (form.bits - 2)
    if form.has_units:
        return QuantsInMemory(form, _in_units(form, quants, size, chance))
    scales = ((torch.rand(shape, generator=chance) + 0.5) * size).half().float()
    scales[0, 0] = 0
    if not form.has_minima:
        return QuantsInMemory(form, Quants(quants, scales))
    zeros = torch.rand(shape, generator=chance) * (2**form.bits - 1)
    return QuantsInMemory(form, Quants(quants, scales, (zeros.round() if name in WITH_ZEROS else zeros) * scales))


def _in_units(form: QuantFormat, quants: Tensor, size: float, chance: torch.Generator) -> Quants:
    rows, inner = quants.shape

    def of(units: Tensor, least: int, most: int) -> Tensor:
        counts = torch.randint(least, most, (rows, inner // form.group), generator=chance)
        return units.repeat_interleave(UNIT_GROUP // form.group, 1) * counts

    units = (torch.rand(2, rows, inner // UNIT_GROUP, generator=chance) * size / 64).half().float()
    units[:, 0] = 0
    if not form.has_minima:
        return Quants(quants, of(units[0], -128, 128), None, units[0])
    return Quants(quants, of(units[0], 0, 64), of(units[1], 0, 256), units[0], units[1])


def close(out: Tensor, expected: Tensor) -> None:
    bounds = {name: 3 * bound for name, bound in tolerance(out.dtype).items()}
    torch.testing.assert_close(out.float(), expected, **bounds, equal_nan=False)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=2, deadline=None)
@given(
    rows=st.integers(1, 19),
    groups=st.integers(1, 3),
    outer=st.integers(1, 40),
    biased=st.booleans(),
    dtype=st.sampled_from(DTYPES),
)
def test_it_multiplies(
    rows: int, groups: int, outer: int, biased: bool, dtype: torch.dtype, name: str, strict: bool
) -> None:
    weight = random(name, outer, groups)
    x = noise(rows, weight.shape[1], dtype=dtype)
    bias = noise(outer, seed=2, dtype=dtype) if biased else None
    form = pack_words(weight, dtype, DEVICE)
    poison()
    out = triton.linear(x, form, bias, strict=strict)
    assert out.dtype == dtype
    close(out, reference.linear(x, dequantized(weight, torch.float32).to(DEVICE), bias))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FORMATS)
def test_every_number_is_unpacked_as_it_is(name: str, dtype: torch.dtype) -> None:
    weight = random(name, 20, 1)
    x = torch.eye(weight.shape[1], device=DEVICE, dtype=dtype)
    product = triton.linear(x, pack_words(weight, dtype, DEVICE))
    expected = dequantized(weight, torch.float32)
    largest = max(expected.abs().max(), (weight.all.minima if weight.all.minima is not None else expected).abs().max())
    rounding = {torch.float32: 2.0**-21, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-7}[dtype]
    assert ((product.T.float().cpu() - expected).abs() <= expected.abs() * rounding + 2.0**-15 * largest).all()


@pytest.mark.parametrize("name", ["Q4_0", "4 bits with zero points, groups of 64", "Q8_0"])
def test_whole_zero_points_leave_no_minima(name: str) -> None:
    assert pack_words(random(name, 3, 2), torch.bfloat16, DEVICE).minima is None


@pytest.mark.parametrize("name", ["Q4_K", "Q6_K", "Q5_K"])
def test_scales_in_units_stay_a_byte_each(name: str) -> None:
    packed = pack_words(random(name, 3, 2), torch.bfloat16, DEVICE)
    assert packed.scales is not None
    assert packed.scales.element_size() == 1
    assert (packed.minima is None) == (not FORMATS[name].has_minima)


def test_more_rows_than_are_read_at_once_come_together() -> None:
    weight = random("Q4_0", 4100, 1)
    x = noise(2, 32)
    close(
        triton.linear(x, pack_words(weight, torch.float32, DEVICE)),
        reference.linear(x, dequantized(weight, torch.float32).to(DEVICE), None),
    )


@pytest.mark.parametrize(
    "name", ["4 bits with zero points, groups of 64", "Q4_K", "Q6_K", "8 bits with zero points, groups of 64"]
)
def test_a_rows_bits_do_not_depend_on_the_others(name: str) -> None:
    weight = pack_words(random(name, 20, 4), torch.bfloat16, DEVICE)
    x = noise(66, weight.in_features, dtype=torch.bfloat16)
    together = triton.linear(x, weight)
    for first, last in pairwise((0, 1, 3, 65)):
        assert torch.equal(triton.linear(x[first:last], weight), together[first:last])
    order = torch.randperm(66, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    assert torch.equal(triton.linear(x[order], weight), together[order])


@pytest.mark.parametrize("name", ["Q4_K", "Q8_0"])
def test_a_row_of_nan_stays_alone(name: str) -> None:
    weight = pack_words(random(name, 9, 2), torch.float32, DEVICE)
    x = noise(3, weight.in_features)
    x[1] = float("nan")
    out = triton.linear(x, weight)
    assert out.isnan().all(1).tolist() == [False, True, False]
    assert torch.isfinite(out[[0, 2]]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("few_rows", [False, True])
def test_a_cpu_multiplies_by_what_the_codes_stand_for(few_rows: bool, dtype: torch.dtype) -> None:
    weight = random("Q4_1", 40, 3)
    x, bias = torch.randn(5, 96).to(dtype), torch.randn(40).to(dtype)
    product = pack_quantized(weight, bias, dtype, torch.device("cpu"), few_rows=few_rows)(x)
    assert product.dtype == dtype
    close(product, reference.linear(x, dequantized(weight, dtype), bias))
