"""The launches of a model of some shape, and the device that they run on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from outrider.kernels import catalogue
from outrider.kernels.catalogue import entries
from outrider.kernels.compilation import key
from outrider.kernels.launch import Config, launch
from outrider.kernels.pool import POOL_DTYPES
from outrider.kernels.shapes import SHAPES
from outrider.kernels.warm_up import warm_up
from torch._subclasses.fake_tensor import FakeTensorMode


def test_every_op_with_a_kernel_is_in_it() -> None:
    ops = {folder.name for folder in Path(catalogue.__file__).parent.iterdir() if (folder / "triton.py").exists()}
    launched_ops = {entry.op for name in ("pocket", "gemma-3-270m", "mixtral-8x7b") for entry in entries(SHAPES[name])}
    assert launched_ops == ops - {"elementary", "kv_quant"}


@pytest.mark.parametrize("dtype", POOL_DTYPES)
def test_the_dtype_of_keys_and_values_asks_for_kernels_of_its_own(dtype: torch.dtype) -> None:
    shapes = [replace(SHAPES["pocket"], kv_dtype=other, layers=3) for other in (dtype, *POOL_DTYPES)]
    same, *kernels = [{key(entry.launch) for entry in entries(shape)} for shape in shapes]
    assert kernels.count(same) == 1


@pytest.mark.parametrize("page_size", [1, 8, 64])
def test_pages_of_every_size_ask_for_as_many_kernels(page_size: int) -> None:
    shape = replace(SHAPES["pocket"], page_size=page_size)
    assert len({key(entry.launch) for entry in entries(shape)}) == len(
        {key(entry.launch) for entry in entries(SHAPES["pocket"])}
    )


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


class Devices:
    """Stands in for torch's current CUDA device, which needs GPUs."""

    def __init__(self) -> None:
        self.current = 0

    def __call__(self) -> int:
        return self.current

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        before, self.current = self.current, device.index
        yield
        self.current = before


class Kernel:
    """A kernel that notes the current device at its compilations and launches."""

    arg_names = ("x", "count")

    def __init__(self, devices: Devices) -> None:
        self.devices, self.compiled, self.launched = devices, list[int](), list[tuple[int, tuple[object, ...]]]()

    def warmup(self, **_: object) -> Kernel:
        self.compiled.append(self.devices.current)
        return self

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda x, count: self.launched.append((self.devices.current, (*grid, x.dtype, count)))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    devices = Devices()
    monkeypatch.setattr(torch.cuda, "current_device", devices)
    monkeypatch.setattr(torch.cuda, "device", devices.device)
    monkeypatch.setattr(torch.Tensor, "data_ptr", lambda self: 4 * (len(self) % 4))
    return Kernel(devices)


_absent = pytest.mark.skipif(torch.cuda.is_available(), reason="stands in for GPUs that are not there")


@_absent
@pytest.mark.parametrize("index", [0, 1, 3])
def test_a_kernel_is_launched_on_the_device_of_its_tensors(kernel: Kernel, index: int) -> None:
    with FakeTensorMode():
        x = torch.empty(4, device=f"cuda:{index}")
        launch(kernel, (1,), {"count": 4, "x": x}, {}, Config())
    assert kernel.compiled == [index]
    assert kernel.launched == [(index, (1, 1, 1, torch.float32, 4))]
    assert kernel.devices.current == 0


@_absent
def test_a_kernel_is_compiled_once_for_all_that_is_compiled_in(kernel: Kernel) -> None:
    with FakeTensorMode():
        x, longer, unaligned = (torch.empty(size, device="cuda:0") for size in (4, 8, 5))
        half = torch.empty(4, dtype=torch.float16, device="cuda:0")
        for arguments in ({"x": x, "count": 4}, {"x": longer, "count": 5}):
            launch(kernel, (2, 3), arguments, {}, Config())
        assert len(kernel.compiled) == 1
        for other in ({"x": unaligned, "count": 4}, {"x": half, "count": 4}, {"x": x, "count": 2**31}):
            launch(kernel, (1,), other, {}, Config())
        launch(kernel, (1,), {"x": x, "count": 4}, {"COUNT": 1}, Config())
        launch(kernel, (1,), {"x": x, "count": 4}, {}, Config(warps=8))
    assert len(kernel.compiled) == 6
    assert len(kernel.launched) == 7


@pytest.mark.parametrize("name", SHAPES)
def test_a_launch_gives_all_arguments_of_its_kernel(name: str) -> None:
    for entry in entries(SHAPES[name]):
        given = entry.launch.args.keys() | entry.launch.constants.keys()
        assert given == set(entry.launch.kernel.arg_names), entry.variant
