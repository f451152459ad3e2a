"""What a model of some shape launches."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from outrider.kernels.catalogue import entries
from outrider.kernels.compilation import key
from outrider.kernels.pool import POOL_DTYPES
from outrider.kernels.shapes import SHAPES
from outrider.kernels.warm_up import warm_up


@pytest.mark.parametrize("dtype", POOL_DTYPES)
def test_a_model_launches_the_same_kernels_however_many_pages_it_has(dtype: torch.dtype) -> None:
    shape = replace(SHAPES["pocket"], kv_dtype=dtype)
    kernels = [key(entry.launch) for entry in entries(shape)]
    assert [key(entry.launch) for entry in entries(replace(shape, page_size=64, layers=3))] == kernels
    assert len(set(kernels)) > 4


def test_kernels_are_warmed_up_on_cuda_devices_alone() -> None:
    with pytest.raises(ValueError, match="kernels are compiled for a CUDA device"):
        warm_up(SHAPES["pocket"], "cpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="compiles for the GPU at hand")
def test_what_was_warmed_up_is_not_compiled_again() -> None:
    shape = SHAPES["pocket"]
    assert warm_up(shape, "cuda") == len({key(entry.launch) for entry in entries(shape)})
    launches = [entry.launch for entry in entries(shape)]
    held = [len(launch.kernel.device_caches[torch.cuda.current_device()][0]) for launch in launches]
    warm_up(shape, "cuda")
    assert held == [len(launch.kernel.device_caches[torch.cuda.current_device()][0]) for launch in launches]
