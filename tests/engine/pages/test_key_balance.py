"""Factors even out the features of keys, and change no product."""

from __future__ import annotations

import pytest
import torch
from outrider.engine.pages.key_balance import key_balance, key_sizes
from outrider.kernels.kv_quant import reference


def test_pairs_that_are_large_by_their_biases_or_weights_are_divided_by_their_size() -> None:
    weight, bias = torch.randn(2 * 16, 40, generator=torch.Generator().manual_seed(0)), torch.zeros(2 * 16)
    bias[5], weight[16 + 8] = 500.0, weight[16 + 8] * 30
    sizes = key_sizes(weight, bias).view(2, 16)
    factors = key_balance(sizes, heads=6)
    assert factors.shape == (8, 16)
    keys = factors[6:]
    torch.testing.assert_close(factors[:6], 1 / keys.repeat_interleave(3, 0))
    evened = (sizes * keys).view(2, 8, 2).norm(dim=2)
    torch.testing.assert_close(evened, evened[:, :1].expand(2, 8))
    assert torch.equal(keys[:, 0::2], keys[:, 1::2])
    assert keys[0].argmin() == 4
    assert keys[1].argmin() == 8
    assert keys[0, 4] < keys[0].median() / 8


@pytest.mark.parametrize("sizes", [torch.zeros(1, 8), torch.tensor([[1e-12, 0.0, 1.0, 1.0, 1e30, 0.0, 1.0, 1.0]])])
def test_factors_are_bounded_whatever_the_sizes_are(sizes: torch.Tensor) -> None:
    factors = key_balance(sizes, heads=1)
    assert factors.isfinite().all()
    assert factors.log2().abs().max() <= 8


def test_evened_keys_keep_more_of_their_small_features() -> None:
    random = torch.Generator().manual_seed(1)
    bias = torch.zeros(32)
    bias[3] = 200.0
    keys = torch.randn(1000, 32, generator=random) + bias
    factors = key_balance(key_sizes(torch.eye(32), bias)[None], heads=1)[1]

    def lost(values: torch.Tensor) -> float:
        return (
            (reference.dequantize(*reference.quantize(values, torch.int8)) - values).square().mean(0)[8:].mean().item()
        )

    assert lost(keys * factors) < lost(keys) / 100
