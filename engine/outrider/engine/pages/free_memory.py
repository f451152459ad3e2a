"""Memory that a process may still take, on a CPU or a GPU."""

from __future__ import annotations

import torch
from outrider.native.share import free_memory


def free_bytes(device: torch.device) -> int:
    """Bytes that this process may still take on ``device``.

    On a GPU that is what the driver calls free, and what torch holds without using it.

    Args:
        device: a CPU or a CUDA device.

    Raises:
        OSError: the system does not say how much memory there is.
    """
    if device.type != "cuda":
        return free_memory()
    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info(device)[0])
