"""The pool's dtypes."""

from __future__ import annotations

import pytest
import torch
from outrider.kernels.kv_compact import kv_compact_batch
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
    with pytest.raises(ValueError, match=r"in torch\.float64"):
        KvPool(1, 1, 1, 1, 2, torch.float64)


def test_only_pages_in_bfloat16_and_int8_are_packed() -> None:
    assert KvPool(1, 1, 16, 1, 32, torch.bfloat16, packed=True).packed
    assert KvPool(1, 1, 16, 1, 32, torch.int8, packed=True).scales is not None
    with pytest.raises(ValueError, match=r"packed pages in torch\.float32"):
        KvPool(1, 1, 16, 1, 32, torch.float32, packed=True)


@pytest.mark.parametrize("dtype", POOL_DTYPES)
def test_a_pool_has_the_bytes_of_its_slots(dtype: torch.dtype) -> None:
    pool = KvPool(2, 3, 4, 5, 6, dtype)
    held = pool.data.nbytes + (0 if pool.scales is None else pool.scales.nbytes)
    assert held == 3 * 4 * KvPool.slot_bytes(2, 5, 6, dtype)


def test_packed_pages_are_not_moved_by_torch() -> None:
    pool, none = KvPool(1, 1, 16, 1, 32, torch.bfloat16, packed=True), torch.tensor([0])
    with pytest.raises(ValueError, match="by the compiled library alone"):
        kv_compact_batch(pool, torch.tensor([0, 1], dtype=torch.int32), none, none)
