"""The pool's dtypes."""

from __future__ import annotations

import pytest
import torch
from outrider.kernels.pool import POOL_DTYPES, KvPool


@pytest.mark.parametrize("dtype", POOL_DTYPES)
def test_only_pools_of_codes_have_scales(dtype: torch.dtype) -> None:
    pool = KvPool(2, 3, 4, 5, 6, dtype)
    assert (pool.dtype, pool.data.shape) == (dtype, (2, 12, 2, 5, 6))
    if dtype.itemsize > 1:
        assert pool.scales is None
    else:
        assert pool.scales is not None
        assert (pool.scales.dtype, pool.scales.shape) == (torch.float32, (2, 12, 2, 5))


def test_another_dtype_is_refused() -> None:
    with pytest.raises(ValueError, match=r"in torch\.float64; they are kept in one of torch\.float32, .*torch\.int8"):
        KvPool(1, 1, 1, 1, 2, torch.float64)
