"""The race by the compiled library, where there is one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_float, c_int64, c_void_p
from functools import cache

import torch
from outrider.kernels.backend import choice
from outrider.kernels.native.build import NativeUnavailable, library
from torch import Tensor

Race = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor | None]
"""Of contiguous logits, seeds, positions and temperatures, what is drawn: int64 [n], as `outrider.kernels.race_sample`
defines it where nothing is penalised, masked or truncated. None where a logit is not a number below the limit."""


@cache
def native_race(greedy_below: float, limit: float) -> Race | None:
    """The race with these constants; None where it cannot be had."""
    if choice() not in ("auto", "native"):
        return None
    try:
        return race_of(library(), greedy_below, limit)
    except NativeUnavailable:
        return None


def race_of(loaded: ctypes.CDLL, greedy_below: float, limit: float) -> Race:
    """The function of a library."""
    call = loaded.outrider_race
    call.argtypes = (c_void_p, c_int64, c_int64, c_void_p, c_void_p, c_void_p, c_float, c_float, c_void_p)

    def race(logits: Tensor, seeds: Tensor, positions: Tensor, temperatures: Tensor) -> Tensor | None:
        tokens = torch.empty(len(logits), dtype=torch.int64)
        rows = (seeds.data_ptr(), positions.data_ptr(), temperatures.data_ptr())
        fine = call(logits.data_ptr(), *logits.shape, *rows, greedy_below, limit, tokens.data_ptr())
        return tokens if fine else None

    return race
