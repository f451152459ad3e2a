"""Matmuls with packed weights, and those whose rows do not depend on their number."""

from __future__ import annotations

import weakref

import pytest
import torch
from outrider.kernels.invariance import InvariantLinear, NotInvariant, RowRange, row_range
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
    for few_rows in (False, True):
        product = pack(weight, bias, few_rows=few_rows)(x)
        assert product.dtype == dtype
        torch.testing.assert_close(product.float(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("inner", "outer"), [(256, 512), (704, 256), (33, 21), (1536, 256)])
def test_rows_of_an_invariant_product_do_not_depend_on_their_number_or_place(
    dtype: torch.dtype, inner: int, outer: int
) -> None:
    plain = pack(random(outer, inner).to(dtype))
    linear = InvariantLinear(plain, row_range(inner, outer, dtype, pack))
    x = random(517, inner, seed=1).to(dtype)
    together = linear(x)
    for rows in (1, 2, 3, 7, 11, 30, 77, 255, 300):
        chosen = torch.randperm(len(x), generator=torch.Generator().manual_seed(rows))[:rows]
        assert torch.equal(linear(x[chosen]), together[chosen])


class SomeRowsDiffer:
    """A product that gives other bits for every number of rows outside a range."""

    dtype = torch.float32

    def __init__(self, weight: Tensor, least: int, most: int) -> None:
        self.out_features, self.in_features = weight.shape
        self._weight, self._least, self._most = weight, least, most

    def __call__(self, x: Tensor) -> Tensor:
        rows = len(x)
        other = 0 if self._least <= rows <= self._most else rows
        return (x.double() @ self._weight.double().T + other).float()


def range_of(least: int, most: int) -> RowRange:
    return row_range(8, 3, torch.float32, lambda weight: SomeRowsDiffer(weight, least, most))


def test_numbers_of_rows_that_are_not_safe_are_filled_up_or_split() -> None:
    rows = range_of(5, 40)
    assert rows == RowRange(8, 32)
    linear = InvariantLinear(SomeRowsDiffer(random(3, 8), 5, 40), rows)
    x = random(70, 8)
    exact = SomeRowsDiffer(random(3, 8), 0, 100)
    assert torch.equal(linear(x), exact(x))
    assert torch.equal(linear(x[3:4]), exact(x[3:4]))


class PlacesDiffer(SomeRowsDiffer):
    """A product in which it matters where a row stands."""

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x) + torch.arange(len(x))[:, None]


def test_a_product_that_nothing_makes_safe_is_refused() -> None:
    with pytest.raises(NotInvariant, match="8 to 3 features"):
        row_range(8, 3, torch.float32, lambda weight: PlacesDiffer(weight, 0, 300))


def test_a_range_is_sought_with_one_weight_at_a_time() -> None:
    before: list[weakref.ref[Tensor]] = []

    def packed(weight: Tensor) -> Linear:
        assert not [each for each in before if each() is not None]
        before.append(weakref.ref(weight))
        return pack(weight.clone())

    row_range(33, 21, torch.float32, packed)
    assert len(before) > 1
