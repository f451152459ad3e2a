"""The exponential variates of the race."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from outrider.native.library import Library, data_pointer
from torch import Tensor

Variates = Callable[[Tensor, Tensor, int], Tensor]
"""Computes `outrider.kernels.philox.log_exponentials` from contiguous tensors of seeds and positions on the CPU."""


@cache
def variates_of(library: Library) -> Variates:
    """The library's function that computes variates."""
    call = library.functions.outrider_variates

    def variates(seeds: Tensor, positions: Tensor, vocabulary: int) -> Tensor:
        out = torch.empty(len(positions), vocabulary)
        call(data_pointer(seeds), data_pointer(positions), len(positions), vocabulary, data_pointer(out))
        return out

    return variates
