"""Launches Triton kernels, or records launches.

Every wrapper of a kernel ends in `launch`. Under `record_launches` nothing runs: the launches are collected, so that
the same wrappers, given tensors of the ``meta`` device, list the kernels that a model of some shape needs. The kernels
are then compiled ahead of time (`outrider.kernels.warm_up`) and reported on without a GPU (`outrider.kernels.report`).
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
    with _current(args):
        kernel[grid](
            **args,
            **constants,
            num_warps=config.warps,
            num_stages=config.stages,
            enable_fp_fusion=config.fused,
        )


def _current(args: Mapping[str, Tensor | int | float]) -> AbstractContextManager[object]:
    """Makes the tensors' CUDA device the current one: Triton launches there, wherever the tensors are."""
    device = next((arg.device for arg in args.values() if isinstance(arg, Tensor)), None)
    if device is None or device.type != "cuda" or device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(device)


@contextmanager
def record_launches() -> Iterator[list[Launch]]:
    """Collects launches instead of running them."""
    launches: list[Launch] = []
    token = _recorder.set(launches)
    try:
        yield launches
    finally:
        _recorder.reset(token)


def product_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that ``tl.dot`` multiplies for tensors of ``dtype``: the interpreter multiplies bfloat16 wrongly."""
    return torch.float32 if INTERPRETED else dtype
