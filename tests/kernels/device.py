"""Where kernels are tested: on a GPU where there is one, else on CPU tensors in Triton's interpreter."""

from __future__ import annotations

import torch
from outrider.kernels.launch import INTERPRETED
from torch import Tensor

DEVICE = torch.device("cpu" if INTERPRETED else "cuda")

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def noise(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal noise that is the same on every device."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def poison() -> None:
    """Fills the memory that allocators will hand out next with NaN, so that unwritten places show."""
    blocks = [torch.full((size,), float("nan"), device=DEVICE) for size in (2**6, 2**8, 2**10, 2**12, 2**14, 2**16)]
    del blocks


def tolerance(dtype: torch.dtype) -> dict[str, float]:
    """The tolerance of one rounding to ``dtype`` after sums in float32."""
    return {
        torch.float32: {"atol": 2e-6, "rtol": 2e-6},
        torch.float16: {"atol": 1e-3, "rtol": 1e-3},
        torch.bfloat16: {"atol": 8e-3, "rtol": 8e-3},
    }[dtype]
