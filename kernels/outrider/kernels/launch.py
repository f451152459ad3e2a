"""Launches Triton kernels, or records launches.

Every wrapper of a kernel ends in `launch`. Under `record_launches` nothing runs: the launches are collected, so that
the same wrappers, given tensors of the ``meta`` device, list the kernels that a model of some shape needs. The kernels
are then compiled ahead of time (`outrider.kernels.warm_up`) and reported on without a GPU
(`outrider.benches.kernels.report`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")
"""Whether kernels run in Triton's interpreter, on CPU tensors; fixed when this module is imported."""


@dataclass(frozen=True, slots=True)
class Config:
    """How a kernel is compiled.

    Attributes:
        warps: of 32 threads, per program.
        stages: of the pipeline that prefetches in loops.
        fused: whether a product and a sum may become one operation with one rounding. Off where every bit must be
            that of the reference.
    """

    warps: int = 4
    stages: int = 1
    fused: bool = True


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a kernel.

    Attributes:
        kernel: the function under ``triton.jit``.
        grid: programs along up to three axes.
        args: run-time arguments by name. Every integer must be in the kernel's ``do_not_specialize``: no value of
            an argument may cause another compilation.
        constants: compile-time arguments by name.
        config: of the compilation.
    """

    kernel: Any
    grid: tuple[int, ...]
    args: Mapping[str, Tensor | int | float]
    constants: Mapping[str, Any]
    config: Config


_compiled: dict[tuple[object, ...], Any] = {}
"""Compiled kernels, by all that is compiled in."""

_recorder: ContextVar[list[Launch] | None] = ContextVar("recorder", default=None)


def launch(
    kernel: Any,
    grid: tuple[int, ...],
    args: Mapping[str, Tensor | int | float],
    constants: Mapping[str, Any],
    config: Config,
) -> None:
    """Runs ``kernel`` on its tensors' device, or records it under `record_launches`. An empty grid runs nothing.

    The launch is on that device's current stream.
    """
    recorder = _recorder.get()
    if recorder is not None:
        recorder.append(Launch(kernel, grid, args, constants, config))
        return
    if not all(grid):
        return
    options = {"num_warps": config.warps, "num_stages": config.stages, "enable_fp_fusion": config.fused}
    device = next((arg.device for arg in args.values() if isinstance(arg, Tensor)), None)
    if device is None or device.type != "cuda":
        kernel[grid](**args, **constants, **options)
        return
    with _current(device):
        # Triton's own way from a call to the compiled kernel takes several times as long as the launch.
        key = (kernel, device, config, *constants.values(), *map(_compiled_in, args.values()))
        if key not in _compiled:
            _compiled[key] = kernel.warmup(grid=grid, **args, **constants, **options)
        values = {**args, **constants}
        _compiled[key][(*grid, 1, 1)[:3]](*(values[name] for name in kernel.arg_names))


def _compiled_in(arg: Tensor | int | float) -> object:
    """What a compiled kernel takes from an argument: a tensor's dtype and alignment, an integer's width."""
    if isinstance(arg, Tensor):
        return arg.dtype, arg.data_ptr() % 16 == 0
    return type(arg) if isinstance(arg, float) else -(2**31) <= arg < 2**31


def _current(device: torch.device) -> AbstractContextManager[object]:
    """Makes a CUDA device the current one: Triton launches there, wherever the tensors are."""
    return nullcontext() if device.index == torch.cuda.current_device() else torch.cuda.device(device)


@contextmanager
def record_launches() -> Iterator[list[Launch]]:
    """Collects launches instead of running them."""
    launches: list[Launch] = []
    token = _recorder.set(launches)
    try:
        yield launches
    finally:
        _recorder.reset(token)


def dot_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that ``tl.dot`` multiplies for tensors of ``dtype``: the interpreter multiplies bfloat16 wrongly."""
    return torch.float32 if INTERPRETED else dtype
