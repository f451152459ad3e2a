"""Quantized keys and values inside kernels against torch's own conversions."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from outrider.kernels.kv_quant import LARGEST_QUANT, reference
from outrider.kernels.kv_quant.triton import kind, quantize, raw
from torch import Tensor

from tests.kernels.device import DEVICE, noise


@triton.jit
def _encode(heads, quants, scales, HEADS: tl.constexpr, DIM: tl.constexpr, KIND: tl.constexpr):  # noqa: N803
    head = tl.arange(0, HEADS)
    place = head[:, None] * DIM + tl.arange(0, DIM)[None, :]
    quant, scale = quantize(tl.load(heads + place), KIND)
    tl.store(quants + place, quant)
    tl.store(scales + head, scale)


def encoded(heads: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    quants, scales = torch.empty_like(heads, dtype=dtype), torch.empty(len(heads), device=DEVICE)
    _encode[(1,)](heads, raw(quants), scales, *heads.shape, kind(dtype))
    return quants, scales


def with_scale_one(values: Tensor, dtype: torch.dtype, dim: int = 64) -> Tensor:
    """The values in heads whose first element is the greatest quant's, so that the others stay as they are."""
    heads = torch.zeros(4096 // dim, dim, device=DEVICE)
    heads[:, 0] = LARGEST_QUANT[dtype]
    spread = torch.zeros(len(heads) * (dim - 1), device=DEVICE)
    spread[: len(values)] = values
    heads[:, 1:] = spread.view(len(heads), dim - 1)
    return heads


@pytest.mark.parametrize("dtype", list(LARGEST_QUANT))
def test_every_code_and_every_tie_between_two_is_rounded_as_torch_does(dtype: torch.dtype) -> None:
    quants = torch.arange(-128, 128).to(torch.int8).view(dtype).float()
    exact = quants[quants.abs() <= LARGEST_QUANT[dtype]].sort().values.to(DEVICE)
    ties = (exact[1:] + exact[:-1]) / 2
    heads = with_scale_one(torch.cat([exact, ties, ties * (1 + 2**-20), ties * (1 - 2**-20)]), dtype)
    found, scales = encoded(heads, dtype)
    assert scales.eq(1).all()
    assert torch.equal(found.view(torch.uint8), reference.quantize(heads, dtype)[0].view(torch.uint8))


@pytest.mark.parametrize("dtype", list(LARGEST_QUANT))
@pytest.mark.parametrize("size", [1e-20, 1.0, 1e30])
def test_what_is_decoded_is_as_near_as_half_a_code(dtype: torch.dtype, size: float) -> None:
    heads = noise(8, 64) * size
    quants, scales = encoded(heads, dtype)
    torch.testing.assert_close(scales, reference.quantize(heads, dtype)[1])
    relative, absolute = (2**-4, 2**-10) if dtype != torch.int8 else (0.0, 0.5)
    room = (heads.abs() * relative).maximum(scales[:, None] * absolute) * 1.0001
    assert ((reference.dequantize(quants, scales) - heads).abs() <= room).all()


@pytest.mark.parametrize("dtype", list(LARGEST_QUANT))
def test_a_head_of_zeros_is_zero(dtype: torch.dtype) -> None:
    quants, scales = encoded(torch.zeros(1, 64, device=DEVICE), dtype)
    assert not reference.dequantize(quants, scales).any()
    assert scales.isfinite().all()
