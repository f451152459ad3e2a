"""Compiles launches without running them: ahead of the first request, or for a GPU that is not there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import torch
import triton
from outrider.kernels.launch import Launch
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

CAPABILITIES = {"sm_80": 80, "sm_86": 86, "sm_89": 89, "sm_90": 90, "sm_100": 100}
"""A100; A10 and RTX 30; L4, L40 and RTX 40; H100 and H200; B200."""

_LOAD = re.compile(r"ld\.global(?:\.[a-z0-9_:]+)*?(?:\.v(\d))?\.b(\d+)")


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """Properties of a compiled kernel.

    Attributes:
        warps: of a program.
        registers: of a thread.
        spilled: bytes of a thread's registers that are kept in memory.
        shared: bytes of shared memory of a program.
        load: bytes of a thread's widest load from memory, up to 16.
        matmuls: ``tcgen05.mma``, ``wgmma`` or ``mma.sync`` where tensor cores multiply matrices, else ``none``.
        copies: ``bulk`` (TMA) or ``cp.async`` where memory is copied asynchronously, else ``none``.
    """

    warps: int
    registers: int
    spilled: int
    shared: int
    load: int
    matmuls: str
    copies: str


class _AbsentGpu(DriverBase):  # type: ignore[misc]
    """A driver for a GPU that is not there, of which only the compute capability is known."""

    def __init__(self, capability: int) -> None:
        self._capability = capability

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self._capability, 32)

    def get_current_device(self) -> int:
        return -self._capability

    def get_current_stream(self, device: int) -> int:
        return 0

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError

    def get_active_torch_device(self) -> Any:
        raise NotImplementedError

    def get_benchmarker(self) -> Any:
        raise NotImplementedError


@contextmanager
def target(capability: int) -> Iterator[None]:
    """A context that compiles kernels for a GPU of ``capability`` (80: A100, 90: H100, H200); none can run in it."""
    triton.runtime.driver.set_active(_AbsentGpu(capability))
    try:
        yield
    finally:
        triton.runtime.driver.set_active(None)


def key(launch: Launch) -> tuple[object, ...]:
    """A key that is equal for launches that compile to the same kernel."""
    args = tuple((name, arg.dtype if isinstance(arg, Tensor) else type(arg)) for name, arg in launch.args.items())
    return launch.kernel, args, tuple(launch.constants.items()), launch.config


def runs(launch: Launch, capability: int) -> bool:
    """Whether a GPU of ``capability`` can run ``launch``: 8-bit floats need 89."""
    has_fp8 = any(isinstance(arg, Tensor) and arg.dtype == torch.float8_e4m3fn for arg in launch.args.values())
    return capability >= 89 or not has_fp8


def compile_all(launches: Iterable[Launch], threads: int = 1) -> list[Any]:
    """Compiles Triton's kernels of ``launches``, and caches them as their first run would.

    Raises:
        ValueError: an integer among the arguments of a launch would be compiled in.
    """
    launches = list(launches)
    for launch in launches:
        _check(launch)
    with ThreadPoolExecutor(threads) as pool, triton.AsyncCompileMode(pool):
        kernels = [
            launch.kernel.warmup(
                grid=launch.grid,
                **launch.args,
                **launch.constants,
                num_warps=launch.config.warps,
                num_stages=launch.config.stages,
                enable_fp_fusion=launch.config.fused,
            )
            for launch in launches
        ]
    return [kernel.result() if hasattr(kernel, "future") else kernel for kernel in kernels]


def _check(launch: Launch) -> None:
    integers = {name for name, arg in launch.args.items() if isinstance(arg, int)}
    compiled_in = [p.name for p in launch.kernel.params if p.name in integers and not p.do_not_specialize]
    if compiled_in:
        raise ValueError(f"{launch.kernel.__name__} must have {', '.join(compiled_in)} in do_not_specialize")


def facts(kernel: Any) -> CompiledKernel:
    """The properties of a kernel that `compile_all` returned."""
    usage = _usage(kernel.asm["cubin"])
    ptx = kernel.asm["ptx"]
    return CompiledKernel(
        warps=kernel.metadata.num_warps,
        registers=usage["REG"],
        spilled=usage["STACK"] + usage["LOCAL"],
        shared=kernel.metadata.shared,
        load=max((int(count or 1) * int(bits) // 8 for count, bits in _LOAD.findall(ptx)), default=0),
        matmuls=next((name for name in ("tcgen05.mma", "wgmma", "mma.sync") if name in ptx), "none"),
        copies="bulk" if "cp.async.bulk" in ptx else "cp.async" if "cp.async" in ptx else "none",
    )


def _usage(cubin: bytes) -> dict[str, int]:
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        completed = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True)
    return {
        name: int(count) for name, count in re.findall(r"(REG|STACK|LOCAL):(\d+)", completed.stdout + completed.stderr)
    }
