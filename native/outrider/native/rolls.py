"""The variates of the race."""

from __future__ import annotations

from collections.abc import Callable

import torch
from outrider.native.library import Library, address
from torch import Tensor

Roll = Callable[[Tensor, Tensor, int], Tensor]
"""What `outrider.kernels.philox.log_exponentials` says of contiguous tensors on the CPU."""


def roll_of(library: Library) -> Roll:
    """The function of a library."""
    call = library.functions.outrider_roll

    def roll(seeds: Tensor, positions: Tensor, vocabulary: int) -> Tensor:
        out = torch.empty(len(positions), vocabulary)
        call(address(seeds), address(positions), len(positions), vocabulary, address(out))
        return out

    return roll
