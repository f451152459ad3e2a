"""Kernels are launched on the device of their tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from outrider.kernels.launch import Config, launch
from torch._subclasses.fake_tensor import FakeTensorMode


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
    """A kernel that notes the current device at its launch."""

    def __init__(self, devices: Devices) -> None:
        self.devices, self.launched = devices, list[int]()

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda **_: self.launched.append(self.devices.current)


@pytest.mark.parametrize("index", [0, 1, 3])
def test_a_kernel_is_launched_on_the_device_of_its_tensors(monkeypatch: pytest.MonkeyPatch, index: int) -> None:
    devices = Devices()
    monkeypatch.setattr(torch.cuda, "current_device", devices)
    monkeypatch.setattr(torch.cuda, "device", devices.device)
    kernel = Kernel(devices)
    with FakeTensorMode():
        x = torch.empty(4, device=f"cuda:{index}")
        launch(kernel, (1,), {"count": 4, "x": x}, {}, Config())
    assert kernel.launched == [index]
    assert devices.current == 0
