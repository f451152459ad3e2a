"""The Triton kernels of linear against matmuls with dequantized weights."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.kernels.launch import record_launches
from outrider.kernels.linear import Quantization, quantize_fp8, quantize_int4, quantize_int8, reference, triton
from outrider.kernels.linear.eight_bit_rows.triton import rows_to_fp8
from outrider.kernels.linear.packed_weight import pack_weight
from torch import Tensor

from tests.kernels.device import DEVICE, DTYPES, noise, poison, tolerance

FORMATS: list[Quantization | None] = [None, "int8", "int4"]


def stands_for(weight: Tensor, quantization: Quantization | None) -> Tensor:
    """A weight as a format stores it, in float32."""
    if quantization is None:
        return weight.float()
    quantize: Any = {"int8": quantize_int8, "int4": quantize_int4, "fp8": quantize_fp8}[quantization]
    dequantized_weight: Tensor = quantize(weight).dequantized()
    return dequantized_weight


def close(out: Tensor, expected: Tensor) -> None:
    """Sums of products of normal numbers and of small weights, rounded once."""
    torch.testing.assert_close(out.float(), expected, **tolerance(out.dtype), equal_nan=False)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("quantization", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=4, deadline=None)
@given(rows=st.integers(1, 19), inner=st.integers(1, 700), outer=st.integers(1, 150), biased=st.booleans())
def test_it_multiplies(
    rows: int, inner: int, outer: int, biased: bool, dtype: torch.dtype, quantization: Quantization | None, strict: bool
) -> None:
    x = noise(rows, inner, dtype=dtype)
    weight = (noise(outer, inner, seed=1) / inner**0.5).to(dtype)
    bias = noise(outer, seed=2, dtype=dtype) if biased else None
    form = pack_weight(weight, quantization)
    poison()
    out = triton.linear(x, form, bias, strict=strict)
    assert out.dtype == dtype
    close(out, reference.linear(x, stands_for(weight, quantization), bias))


@pytest.mark.parametrize("strict", [False, True])
def test_eight_bit_floats_multiply_rows_that_are_rounded_too(strict: bool) -> None:
    x, weight = noise(5, 301, dtype=torch.bfloat16), noise(70, 301, seed=1, dtype=torch.bfloat16) / 17
    quants, scales = rows_to_fp8(x)
    bias = noise(70, dtype=torch.bfloat16)
    poison()
    out = triton.linear(x, pack_weight(weight, "fp8"), bias, strict=strict)
    close(out, reference.linear(quants[:, :301].float() * scales[:, None], stands_for(weight, "fp8"), bias))
    assert triton.linear(x * 0, pack_weight(weight, "fp8")).abs().max() == 0


def test_rows_of_eight_bit_floats_are_off_by_half_a_step_at_most() -> None:
    x = noise(4, 2500) * torch.tensor([[1e-6], [1.0], [1e6], [0.0]], device=DEVICE)
    poison()
    quants, scales = rows_to_fp8(x)
    torch.testing.assert_close(scales, x.abs().amax(1).clamp_min(1e-30) / 448)
    assert quants[:, 2500:].float().abs().max() == 0
    quants, exact = quants[:, :2500].float(), x / scales[:, None]
    step = 2.0 ** (exact.abs().clamp_min(2.0**-6).log2().floor() - 3)
    assert ((quants - exact).abs() <= 0.5001 * step).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_code_is_unpacked_at_every_place(dtype: torch.dtype) -> None:
    quants = torch.arange(-127, 129, device=DEVICE)
    weight = torch.stack([quants.roll(shift).clamp_max(127) for shift in range(5)]).to(dtype)
    product = triton.linear(torch.eye(256, device=DEVICE, dtype=dtype), pack_weight(weight, "int8"))
    assert torch.equal(product.T, weight)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_four_bit_code_is_unpacked_with_every_zero_point(dtype: torch.dtype) -> None:
    quants = torch.arange(256, device=DEVICE) * 7 % 16
    weight = (quants - torch.arange(16, device=DEVICE)[:, None]).to(dtype)
    product = triton.linear(torch.eye(256, device=DEVICE, dtype=dtype), pack_weight(weight, "int4"))
    assert torch.equal(product.T, weight)


def cancelling(rows: int, inner: int, outer: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Rows and a weight whose products are zero but for rounding, so that another order of a sum shows in any dtype.

    Weights are integers that every format keeps up to a scale; at two places of each group, where rows are zero, they
    are the ends of the range of four bits.
    """
    x, weight = noise(rows, inner), noise(outer, inner, seed=1).mul(3).round().clamp(-7, 7)
    ends = torch.arange(0, inner, 128)
    free = torch.tensor([place for place in range(inner) if place % 128 > 1])
    free = free[torch.randperm(len(free), generator=torch.Generator().manual_seed(0))]
    ours, theirs = free[: len(free) // 2], free[len(free) // 2 :]
    weight[:, theirs], x[:, theirs] = -weight[:, ours], x[:, ours]
    weight[:, ends], weight[:, ends + 1] = -8.0, 7.0
    x[:, ends], x[:, ends + 1] = 0.0, 0.0
    return x.to(dtype), weight.to(dtype)


@pytest.mark.parametrize(
    ("dtype", "quantization", "rows"),
    [(torch.float32, None, 18), *((torch.bfloat16, quantization, 66) for quantization in (*FORMATS, "fp8"))],
)
def test_a_rows_bits_do_not_depend_on_the_others(
    dtype: torch.dtype, quantization: Quantization | None, rows: int
) -> None:
    x, weight = cancelling(rows, 1024, 20, dtype)
    form = pack_weight(weight, quantization)
    together = triton.linear(x, form)
    # Tensor cores of Hopper add products of 8-bit floats in 14 bits, 128 of them at a time.
    most = 0.1 if quantization == "fp8" and DEVICE.type == "cuda" else 1e-3
    assert 0 < together.abs().max() < most
    for first, last in pairwise((0, 1, 3, rows - 1)):
        assert torch.equal(triton.linear(x[first:last], form), together[first:last])
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    assert torch.equal(triton.linear(x[order], form), together[order])


@pytest.mark.parametrize("quantization", FORMATS)
def test_a_row_of_nan_stays_alone(quantization: Quantization | None) -> None:
    x = noise(3, 140)
    x[1] = float("nan")
    out = triton.linear(x, pack_weight(noise(9, 140), quantization))
    assert out.isnan().all(1).tolist() == [False, True, False]
    assert torch.isfinite(out[[0, 2]]).all()


@pytest.mark.parametrize("quantization", FORMATS)
def test_how_a_product_is_divided_is_a_matter_of_the_weight(quantization: Quantization | None) -> None:
    form = pack_weight(torch.empty(4096, 14336, dtype=torch.bfloat16, device="meta"), quantization)
    divisions = set()
    for rows in (1, 17, 64, 65, 700):
        with record_launches() as noted:
            triton.linear(torch.empty(rows, 14336, dtype=torch.bfloat16, device="meta"), form)
        constants = noted[0].constants
        divisions.add(tuple(constants[name] for name in ("SPLITS", "SLICES", "WORDS", "PARTS", "GROUP")))
        assert len(noted) == 1 + (not constants["JOINED"])
    assert len(divisions) == 1


def test_many_rows_are_a_launch_for_each_thousand() -> None:
    x, form = noise(1030, 4), pack_weight(noise(3, 4), None)
    close(triton.linear(x, form), reference.linear(x, form.words, None))


def test_no_rows_are_no_product() -> None:
    assert triton.linear(noise(0, 33), pack_weight(noise(5, 33), "int8")).shape == (0, 5)


@pytest.mark.parametrize(
    ("x", "bias", "message"),
    [
        (noise(2, 6), None, r"must be a contiguous \[n, 5\]"),
        (noise(5, 2).T, None, "must be a contiguous"),
        (noise(5), None, "must be a contiguous"),
        (noise(2, 5, dtype=torch.bfloat16), None, "must be torch.float32"),
        (noise(2, 5).to("meta"), None, "x is on meta"),
        (noise(2, 5), noise(4), r"it must be \[3\] beside x"),
    ],
)
def test_what_does_not_fit_the_weight_is_refused(x: Tensor, bias: Tensor | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        triton.linear(x, pack_weight(noise(3, 5), None), bias)
