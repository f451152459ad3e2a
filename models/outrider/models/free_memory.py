"""Memory that a process may still take, on a CPU or a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch


def free_bytes(device: torch.device, root: Path = Path("/")) -> int:
    """Bytes that this process may still take on ``device``.

    On a GPU that is what the driver calls free, and what torch holds without using it. On a CPU it is what Linux can
    give without swapping (``MemAvailable``), and no more than the process's control groups leave
    (https://docs.kernel.org/admin-guide/cgroup-v2.html, "Memory").

    Args:
        device: a CPU or a CUDA device.
        root: the folder of ``proc`` and ``sys``.

    Raises:
        OSError: the system does not say how much memory there is.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(device)[0])
    return max(min((_available(root), *_left_by_groups(root))), 0)


def _available(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    raise OSError("/proc/meminfo has no MemAvailable")


def _left_by_groups(root: Path) -> Iterator[int]:
    """What each control group above the process leaves; none where there are no groups of version 2."""
    mounted = root / "sys/fs/cgroup"
    group = mounted / _group(root)
    for folder in (group, *group.parents):
        if not folder.is_relative_to(mounted):
            return
        limits = [limit for name in ("memory.max", "memory.high") if (limit := _number(folder / name)) is not None]
        used = _number(folder / "memory.current")
        if limits and used is not None:
            yield min(limits) - used + _reclaimable(folder)


def _group(root: Path) -> str:
    """The process's control group of version 2, relative to the mounted folder."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return ""
    group = next((line[3:].lstrip("/") for line in lines if line.startswith("0::")), "")
    return "" if ".." in group.split("/") else group


def _number(path: Path) -> int | None:
    """The number in a file; None where there is no file, or no limit."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _reclaimable(folder: Path) -> int:
    """Bytes of files in memory that a control group gives back when it needs memory."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("inactive_file ", "active_file ")))
