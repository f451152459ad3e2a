"""Weights that a checkpoint has in eight-bit floats, against matmuls with the numbers that they stand for."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from outrider.kernels.linear import reference, triton
from outrider.kernels.linear.eight_bit_rows.triton import rows_to_fp8
from outrider.kernels.linear.packed_weight import PackedWeight
from outrider.kernels.linear.quantized_packing import pack_quantized
from outrider.native.quantized import QuantFormat, Quants, QuantsInMemory, dequantized
from torch import Tensor

from tests.kernels.device import DEVICE, DTYPES, noise, poison, tolerance

WHOLE = 1 << 30
SIZES = [(128, 5, 70, 301), (128, 2, 129, 384), (WHOLE, 3, 33, 200)]
"""Group, rows, output and input features."""


def floats(outer: int, inner: int, group: int, rounds_rows: bool = True) -> QuantsInMemory:
    """A weight of about normal numbers over the square root of ``inner``, whose scales differ by up to 8."""
    groups = -(-inner // group)
    scales = (noise(outer, groups, seed=3).cpu().abs() + 0.3) / inner**0.5 / 100
    quants = noise(outer, inner, seed=1).cpu().mul(100).clamp(-448, 448).to(torch.float8_e4m3fn)
    form = QuantFormat(8, group, floats=True, rounds_rows=rounds_rows)
    return QuantsInMemory(form, Quants(quants.view(torch.uint8), scales))


def numbers(weight: QuantsInMemory) -> Tensor:
    return dequantized(weight, torch.float32).to(DEVICE)


def packed(weight: QuantsInMemory, dtype: torch.dtype) -> PackedWeight:
    return pack_quantized(weight, dtype, DEVICE)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("group", "rows", "outer", "inner"), [*SIZES[1:], (32, 4, 40, 96)])
def test_weights_alone_are_widened(group: int, rows: int, outer: int, inner: int, strict: bool) -> None:
    dtype = torch.bfloat16
    x, weight = noise(rows, inner, dtype=dtype), floats(outer, inner, group, rounds_rows=False)
    bias = noise(outer, seed=2, dtype=dtype)
    form = packed(weight, dtype)
    assert form.words.dtype == torch.int16
    poison()
    out = triton.linear(x, form, bias, strict=strict)
    torch.testing.assert_close(out.float(), reference.linear(x, numbers(weight), bias), **tolerance(dtype))


@pytest.mark.parametrize(("group", "rows", "outer", "inner"), SIZES)
def test_rows_are_rounded_beside_weights_that_ask_for_it(group: int, rows: int, outer: int, inner: int) -> None:
    dtype = torch.bfloat16
    x, weight = noise(rows, inner, dtype=dtype), floats(outer, inner, group)
    form, own = packed(weight, dtype), group if group < inner else 0
    assert form.words.dtype == torch.float8_e4m3fn
    quants, scales = rows_to_fp8(x, own)
    each = scales.T.repeat_interleave(own, 1)[:, :inner] if own else scales[:, None]
    poison()
    out = triton.linear(x, form).float()
    rounded = quants[:, :inner].float() * each
    torch.testing.assert_close(out, reference.linear(rounded, numbers(weight), None), **tolerance(dtype))
    # Each input is off by a sixteenth of itself, or by half the smallest step of its group.
    most = (x.float().abs() / 16).maximum(each * 2.0**-10) @ numbers(weight).abs().T
    exact = reference.linear(x, numbers(weight), None)
    assert ((out - exact).abs() <= most + tolerance(dtype)["atol"] + tolerance(dtype)["rtol"] * exact.abs()).all()


def test_a_group_of_other_sizes_leaves_rows_as_they_are() -> None:
    assert packed(floats(8, 512, 64), torch.bfloat16).words.dtype == torch.int16


@pytest.mark.parametrize("rounds_rows", [False, True])
@pytest.mark.parametrize("group", [128, WHOLE])
def test_a_weight_takes_about_a_byte_a_number(group: int, rounds_rows: bool) -> None:
    form = packed(floats(130, 1000, group, rounds_rows), torch.bfloat16)
    assert form.scales is not None
    assert form.words.nbytes + form.scales.nbytes <= 1.06 * 130 * 1000


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_number_is_widened_at_every_place(dtype: torch.dtype) -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    codes[codes & 127 == 127] = 0  # not a number
    bits = torch.stack([codes.roll(shift) for shift in range(3)])
    form = QuantFormat(8, WHOLE, floats=True)
    weight = QuantsInMemory(form, Quants(bits, torch.ones(3, 1)))
    product = triton.linear(torch.eye(256, device=DEVICE, dtype=dtype), packed(weight, dtype))
    assert torch.equal(product.T.cpu().float(), bits.view(torch.float8_e4m3fn).float())


@pytest.mark.parametrize("rounds_rows", [False, True])
def test_a_rows_bits_do_not_depend_on_the_others(rounds_rows: bool) -> None:
    x, form = noise(66, 512, dtype=torch.bfloat16), packed(floats(20, 512, 128, rounds_rows), torch.bfloat16)
    x[:, 1::2] = -x[:, ::2]
    together = triton.linear(x, form)
    for first, last in pairwise((0, 1, 3, 65)):
        assert torch.equal(triton.linear(x[first:last], form), together[first:last])
    order = torch.randperm(66, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    assert torch.equal(triton.linear(x[order], form), together[order])


def test_groups_of_rows_are_off_by_half_a_step_at_most() -> None:
    x = noise(4, 2500) * torch.tensor([[1e-6], [1.0], [1e6], [0.0]], device=DEVICE)
    x[1, 128:256] *= 1e-4
    poison()
    quants, scales = rows_to_fp8(x, 128)
    largest = torch.nn.functional.pad(x.abs(), (0, 60)).view(4, 20, 128).amax(2)
    torch.testing.assert_close(scales, largest.T.clamp_min(1e-30) / 448)
    assert quants[:, 2500:].float().abs().max() == 0
    each = scales.T.repeat_interleave(128, 1)[:, :2500]
    quants, exact = quants[:, :2500].float(), x / each
    step = 2.0 ** (exact.abs().clamp_min(2.0**-6).log2().floor() - 3)
    assert ((quants - exact).abs() <= 0.5001 * step).all()
