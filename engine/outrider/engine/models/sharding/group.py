"""The ranks of a model, seen from one of them: sums and joins tensors over all."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from outrider.engine.errors import ModelError, RankLost
from outrider.kernels.linear import Linear
from torch import Tensor

T = TypeVar("T")

_WAIT_S = 300.0
"""Most seconds that ranks wait for one another: the first steps on a GPU compile kernels."""


@dataclass(frozen=True, slots=True)
class Group:
    """``size`` processes, of which this is ``rank``. `RankLost` is raised where another one does not answer.

    Attributes:
        fixed: whether sums are in the order of the ranks, so that their bits depend on the numbers alone.
    """

    rank: int
    size: int
    fixed: bool

    @staticmethod
    def check_free() -> None:
        """`ModelError` if this process is in a group already: torch has one a process."""
        if dist.is_initialized():
            raise ModelError("tensor_parallel must be 1: another model of this process runs over several ranks")

    @classmethod
    def join(cls, rank: int, size: int, file: Path, device: torch.device, *, fixed: bool) -> Group:
        """Joins the group that meets at ``file``, over NCCL on GPUs and gloo elsewhere; returns once all have."""
        if "lo" in (name for _, name in socket.if_nameindex()):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        store = torch._C._distributed_c10d.FileStore(str(file), size)
        backend = "nccl" if device.type == "cuda" else "gloo"
        _reached(
            lambda: dist.init_process_group(
                backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=_WAIT_S)
            )
        )
        return cls(rank, size, fixed)

    def leave(self) -> None:
        """Ends the group for this process."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def sum(self, part: Tensor) -> Tensor:
        """The sum of all ranks' parts of one shape, float32."""
        if not self.fixed:
            total = part.float().contiguous()
            _reached(lambda: dist.all_reduce(total))
            return total
        part = part.contiguous()
        parts = [torch.empty_like(part) for _ in range(self.size)]
        _reached(lambda: dist.all_gather(parts, part))
        total = parts[0].float()
        for each in parts[1:]:
            total = total.add(each)
        return total

    def join_columns(self, part: Tensor, total: int) -> Tensor:
        """All ranks' columns side by side, [n, total], on rank 0; on others the tensor is not filled.

        Args:
            part: [n, columns], where all ranks but the last ones have ``ceil(total / size)`` columns.
            total: columns of all ranks.
        """
        width = -(-total // self.size)
        part = torch.nn.functional.pad(part, (0, width - part.shape[1])).contiguous()
        parts = [torch.empty_like(part) for _ in range(self.size)] if self.rank == 0 else None
        _reached(lambda: dist.gather(part, parts))
        return part if parts is None else torch.cat(parts, -1)[:, :total]

    def share(self, tensor: Tensor) -> None:
        """Copies rank 0's ``tensor`` into that of all others."""
        _reached(lambda: dist.broadcast(tensor, 0))


class SummedLinear:
    """A linear whose input features lie on several ranks: the sum of what each rank computes, float32."""

    def __init__(self, group: Group, part: Linear) -> None:
        self.in_features, self.out_features, self.dtype = part.in_features, part.out_features, part.dtype
        self._group, self._part = group, part

    def __call__(self, x: Tensor) -> Tensor:
        """Float32 [n, out_features] of this rank's columns [n, in_features]."""
        return self._group.sum(self._part(x))


def _reached(call: Callable[[], T]) -> T:
    try:
        return call()
    except RuntimeError as error:  # gloo and NCCL raise it, and subclasses of it
        raise RankLost(f"a rank of the model does not answer: {str(error).splitlines()[0]}") from error
