"""The variates of the race by the compiled library, where there is one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int64, c_void_p
from functools import cache

import torch
from outrider.kernels.backend import choice
from outrider.kernels.native.build import NativeUnavailable, library
from torch import Tensor

Roll = Callable[[Tensor, Tensor, int], Tensor]


@cache
def native_roll() -> Roll | None:
    """`outrider.kernels.philox.log_exponentials` of contiguous tensors on the CPU; None where it cannot be had."""
    if choice() not in ("auto", "native"):
        return None
    try:
        return roll_of(library())
    except NativeUnavailable:
        return None


def roll_of(loaded: ctypes.CDLL) -> Roll:
    """The function of a library."""
    call = loaded.outrider_roll
    call.argtypes = (c_void_p, c_void_p, c_int64, c_int64, c_void_p)

    def roll(seeds: Tensor, positions: Tensor, vocabulary: int) -> Tensor:
        out = torch.empty(len(positions), vocabulary)
        call(seeds.data_ptr(), positions.data_ptr(), len(positions), vocabulary, out.data_ptr())
        return out

    return roll
