"""Packed products, and those whose rows do not depend on their number."""

from __future__ import annotations

import pytest
import torch
from outrider.kernels.invariance import MOST_ROWS, InvariantLinear, NotInvariant, least_rows
from outrider.kernels.linear import Linear, pack, reference
from torch import Tensor


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 19])
def test_a_packed_weight_gives_the_product(dtype: torch.dtype, biased: bool, rows: int) -> None:
    x, weight = random(rows, 33).to(dtype), random(21, 33, seed=1).to(dtype)
    bias = random(21, seed=2).to(dtype) if biased else None
    expected = reference.linear(x, weight, bias)
    tolerance = 1e-5 if dtype == torch.float32 else 0.05
    for single_rows in (False, True):
        product = pack(weight, bias, single_rows=single_rows)(x)
        assert product.dtype == dtype
        torch.testing.assert_close(product.float(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("inner", "outer"), [(256, 512), (704, 256), (33, 21), (1536, 256)])
def test_rows_of_an_invariant_product_do_not_depend_on_their_number_or_place(
    dtype: torch.dtype, inner: int, outer: int
) -> None:
    plain = pack(random(outer, inner).to(dtype))
    linear = InvariantLinear(plain, least_rows(plain))
    x = random(MOST_ROWS * 2 + 5, inner, seed=1).to(dtype)
    together = linear(x)
    for rows in (1, 2, 3, 7, 11, 30, 77, 255, 300):
        chosen = torch.randperm(len(x), generator=torch.Generator().manual_seed(rows))[:rows]
        assert torch.equal(linear(x[chosen]), together[chosen])


class FewRowsDiffer:
    """A product that goes another way below five rows."""

    in_features, out_features, dtype = 8, 3, torch.float32

    def __init__(self, differs: int) -> None:
        self._differs = differs

    def __call__(self, x: Tensor) -> Tensor:
        return x[:, :3] * (1.0 if len(x) >= self._differs else 1.0001)


def test_fewer_rows_than_are_safe_are_filled_up() -> None:
    linear: Linear = FewRowsDiffer(5)
    assert least_rows(linear) == 8
    x = random(20, 8)
    assert torch.equal(InvariantLinear(linear, 8)(x[3:4]), linear(x)[3:4])


def test_a_product_that_no_filling_makes_safe_is_refused() -> None:
    with pytest.raises(NotInvariant, match="8 to 3 features depend on their number"):
        least_rows(FewRowsDiffer(200))
