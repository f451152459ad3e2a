"""Compiles a model's kernels before its first request."""

from __future__ import annotations

import torch
from outrider.kernels.launch import INTERPRETED
from outrider.kernels.shapes import ModelShape
from outrider.native.share import cores

_MOST_THREADS = 8


def warm_up(shape: ModelShape, device: torch.device | str) -> int:
    """Compiles every kernel that a model of ``shape`` launches, for the GPU at hand and without running it.

    Compiled kernels are kept in Triton's cache directory, so the next process only loads them.

    Returns:
        How many kernels there are.

    Raises:
        ValueError: ``device`` is no CUDA device, or kernels are interpreted.
    """
    device = torch.device(device)
    if device.type != "cuda" or INTERPRETED:
        raise ValueError(f"kernels are compiled for a CUDA device, with TRITON_INTERPRET unset; the device is {device}")
    from outrider.kernels.catalogue import entries
    from outrider.kernels.compilation import compile_all, key

    distinct = {key(entry.launch): entry.launch for entry in entries(shape)}
    with torch.cuda.device(device):
        return len(compile_all(distinct.values(), threads=min(cores(), _MOST_THREADS)))
