"""The Triton kernel of rms_norm against its definition."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.kernels.rms_norm import cpu, reference, triton

from tests.kernels.device import DEVICE, DTYPES, noise, poison, tolerance

EPS = torch.tensor(1e-5, device=DEVICE)


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=12, deadline=None)
@given(
    rows=st.integers(0, 4), width=st.integers(1, 2100), size=st.sampled_from([1e-3, 1.0, 1e3]), weighted=st.booleans()
)
def test_it_scales_by_the_root_mean_square(
    rows: int, width: int, size: float, weighted: bool, dtype: torch.dtype
) -> None:
    x = noise(rows, width, dtype=dtype) * size
    weight = noise(width, seed=1, dtype=dtype) if weighted else None
    poison()
    out = triton.rms_norm(x, weight, EPS)
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), reference.rms_norm(x, weight, 1e-5), **tolerance(dtype), equal_nan=False)


@pytest.mark.parametrize("run", [triton.rms_norm, cpu.rms_norm])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_added_stays_added_and_is_normed_as_it_was_rounded(dtype: torch.dtype, run: type) -> None:
    x, add, weight = noise(3, 70, dtype=dtype), noise(3, 70, seed=1, dtype=dtype), noise(70, seed=2)
    total = (x + add).float()
    poison()
    out = run(x, weight, EPS, add=add, dtype=torch.float32)
    assert out.dtype == torch.float32
    torch.testing.assert_close(x.float(), total, **tolerance(dtype))
    torch.testing.assert_close(out, reference.rms_norm(x, weight, 1e-5), **tolerance(torch.float32))


def test_the_widest_row_fits() -> None:
    x = noise(1, 16384)
    torch.testing.assert_close(triton.rms_norm(x, None, EPS), reference.rms_norm(x, None, 1e-5))


def test_heads_of_longer_rows_take_a_weight_each() -> None:
    rows, weight = noise(3, 5 * 24), noise(2, 24, seed=1)
    heads = rows.view(3, 5, 24)[:, 1:3]
    torch.testing.assert_close(triton.rms_norm(heads, weight, EPS), reference.rms_norm(heads, weight, 1e-5))


def test_a_row_of_zeros_stays_zero() -> None:
    assert not triton.rms_norm(torch.zeros(1, 33, device=DEVICE), None, EPS).any()


def test_a_rows_bits_do_not_depend_on_the_others() -> None:
    x, add = noise(7, 1030), noise(7, 1030, seed=1)
    together = triton.rms_norm(x.clone(), None, EPS, add=add)
    for i in range(7):
        assert torch.equal(triton.rms_norm(x[i : i + 1].clone(), None, EPS, add=add[i : i + 1]), together[i : i + 1])
    order = torch.tensor([3, 1, 6, 0, 2, 5, 4], device=DEVICE)
    assert torch.equal(triton.rms_norm(x[order], None, EPS, add=add[order]), together[order])


def test_what_does_not_fit_is_refused() -> None:
    x = noise(3, 8)
    with pytest.raises(ValueError, match="1 to 16384"):
        triton.rms_norm(noise(1, 16385), None, EPS)
    with pytest.raises(ValueError, match=r"\[heads, width\]"):
        triton.rms_norm(x, noise(7), EPS)
    with pytest.raises(ValueError, match="evenly"):
        triton.rms_norm(noise(8, 3).T, None, EPS)
    with pytest.raises(ValueError, match="scalar"):
        triton.rms_norm(x, None, EPS.double())
    with pytest.raises(ValueError, match="of x's shape"):
        triton.rms_norm(x, None, EPS, add=noise(3, 7))
