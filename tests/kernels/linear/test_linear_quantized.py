"""Quantized weights: their errors, and their matmuls on a CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.kernels.invariance import InvariantLinear, row_range
from outrider.kernels.linear import Quantization, pack, quantize_fp8, quantize_int4, quantize_int8, reference
from torch import Tensor

INTEGERS: list[Quantization] = ["int8", "int4"]
QUANTIZE: dict[Quantization, Any] = {"int8": quantize_int8, "int4": quantize_int4}


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), inner=st.integers(1, 300), size=st.sampled_from([1e-3, 1.0, 1e4]))
def test_eight_bits_are_off_by_half_a_scale_at_most(seed: int, inner: int, size: float) -> None:
    weight = random(3, inner, seed=seed) * size
    quantized = quantize_int8(weight)
    assert quantized.quants.abs().max() == 127
    assert ((quantized.dequantized() - weight).abs() <= 0.501 * quantized.scales[:, None]).all()


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    inner=st.integers(1, 300),
    shift=st.sampled_from([-5.0, 0.0, 0.3, 5.0]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_four_bits_are_off_by_a_scale_at_most(seed: int, inner: int, shift: float, dtype: torch.dtype) -> None:
    weight = (random(3, inner, seed=seed) + shift).to(dtype)
    quantized = quantize_int4(weight)
    scales = quantized.scales.repeat_interleave(128, 1)[:, :inner]
    error = (quantized.dequantized() - weight.float()).abs()
    assert (error <= 1.04 * scales).all()
    assert torch.equal(quantized.scales, quantized.scales.to(dtype).float())
    if shift == 0 and dtype == torch.float32:
        assert (error <= 0.501 * scales).float().mean() > 0.9


def test_eight_bit_floats_are_off_by_a_sixteenth_of_themselves_or_half_the_smallest_step() -> None:
    weight = random(5, 400)
    quantized = quantize_fp8(weight)
    assert quantized.quants.float().abs().amax(1).tolist() == [448.0] * 5
    error = (quantized.dequantized() - weight).abs()
    assert (error <= (weight.abs() / 16).maximum(quantized.scales[:, None] * 2.0**-10) * 1.001).all()


@pytest.mark.parametrize("quantize", [quantize_int8, quantize_int4, quantize_fp8])
def test_zero_weights_stay_zero(quantize: Any) -> None:
    assert quantize(torch.zeros(2, 130)).dequantized().tolist() == [[0.0] * 130] * 2


@pytest.mark.parametrize("quantization", INTEGERS)
def test_what_lies_beyond_the_input_features_counts_for_nothing(quantization: Quantization) -> None:
    weight = random(4, 130) + 3
    whole = QUANTIZE[quantization](torch.nn.functional.pad(weight, (0, 126))).dequantized()
    assert torch.equal(QUANTIZE[quantization](weight).dequantized(), whole[:, :130])


@pytest.mark.parametrize("quantization", INTEGERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("inner", "outer"), [(256, 64), (704, 21), (33, 5)])
@pytest.mark.parametrize("biased", [False, True])
def test_a_cpu_multiplies_by_what_the_codes_stand_for(
    quantization: Quantization, dtype: torch.dtype, inner: int, outer: int, biased: bool
) -> None:
    x, weight = random(5, inner).to(dtype), (random(outer, inner, seed=1) / inner**0.5).to(dtype)
    bias = random(outer, seed=2).to(dtype) if biased else None
    product = pack(weight, bias, quantization=quantization)(x)
    expected = reference.linear(x, QUANTIZE[quantization](weight).dequantized(), bias)
    assert product.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 0.02
    torch.testing.assert_close(product.float(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("quantization", INTEGERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_of_a_quantized_product_can_be_kept_from_depending_on_their_number(
    quantization: Quantization, dtype: torch.dtype
) -> None:
    def packed(weight: Tensor) -> Any:
        return pack(weight, quantization=quantization)

    linear = InvariantLinear(packed(random(48, 256).to(dtype)), row_range(256, 48, dtype, packed))
    x = random(40, 256, seed=1).to(dtype)
    together = linear(x)
    for rows in (1, 2, 3, 7, 11, 30):
        chosen = torch.randperm(len(x), generator=torch.Generator().manual_seed(rows))[:rows]
        assert torch.equal(linear(x[chosen]), together[chosen])


def test_no_rows_are_no_product() -> None:
    for quantization in INTEGERS:
        assert pack(random(5, 33).bfloat16(), quantization=quantization)(torch.empty(0, 33).bfloat16()).shape == (0, 5)


def test_a_cpu_refuses_eight_bit_floats() -> None:
    with pytest.raises(ValueError, match='"int8" and "int4"'):
        pack(random(4, 4), quantization="fp8")


def test_an_unknown_quantization_is_refused() -> None:
    unknown: Any = "int3"
    with pytest.raises(ValueError, match="int8, int4, fp8"):
        pack(random(4, 4), quantization=unknown)
