"""The Triton kernel of geglu against its definition."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.kernels.geglu import reference, triton

from tests.kernels.device import DEVICE, DTYPES, noise, poison, tolerance


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=15, deadline=None)
@given(rows=st.integers(0, 5), width=st.integers(1, 2100))
def test_it_gates(rows: int, width: int, dtype: torch.dtype) -> None:
    gate_up = noise(rows, 2 * width, dtype=dtype) * 4
    poison()
    out = triton.geglu(gate_up)
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), reference.geglu(gate_up), **tolerance(dtype), equal_nan=False)


def test_large_gates_neither_overflow_nor_vanish_wrongly() -> None:
    gate_up = torch.tensor([[200.0, -200.0, 1.0, 1.0]], device=DEVICE)
    assert triton.geglu(gate_up).tolist() == [[200.0, 0.0]]


def test_a_rows_bits_do_not_depend_on_the_others() -> None:
    gate_up = noise(7, 2 * 1030)
    together = triton.geglu(gate_up)
    assert all(torch.equal(triton.geglu(gate_up[i : i + 1]), together[i : i + 1]) for i in range(7))
    order = torch.tensor([3, 1, 6, 0, 2, 5, 4], device=DEVICE)
    assert torch.equal(triton.geglu(gate_up[order]), together[order])


@pytest.mark.parametrize("shape", [(3, 5), (4,)])
def test_what_is_no_pair_of_halves_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"must be a contiguous \[n, 2 \* width\]"):
        triton.geglu(noise(*shape))
