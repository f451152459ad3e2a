"""The CPU threads of a process's models."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from outrider.native.share import ROOT, cores


def use_threads(count: int = 0, root: Path = ROOT, *, ranks: int = 1) -> int:
    """Has models on the CPU run on ``count`` threads, and returns the number.

    0 stands for OMP_NUM_THREADS; where that is not set, for one thread for each core that this process may use.

    Args:
        count: threads of all ``ranks`` together; 0 or more.
        root: the folder of ``proc`` and ``sys``.
        ranks: processes that run on the cores together.
    """
    if count or "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max((count or min(torch.get_num_threads(), cores(root))) // ranks, 1))
    return torch.get_num_threads()
