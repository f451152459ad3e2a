"""What a process may still take of the machine's memory, as Linux and its control groups say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from outrider.models.free_memory import free_bytes

CPU = torch.device("cpu")
GIB = 1 << 30


def machine(root: Path, group: str = "/", **files: str) -> Path:
    """A machine with 8 GiB to give, whose control groups have ``files``: ``memory.max`` in ``a/b`` is ``a_b_max``."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 99 kB\nMemFree: 7 kB\nMemAvailable:  {8 * GIB // 1024} kB\n")
    (root / "proc/self/cgroup").write_text(f"4:memory:/old\n0::{group}\n")
    for name, text in files.items():
        *folders, kind = name.split("_")
        folder = root.joinpath("sys/fs/cgroup", *folders)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"memory.{kind}").write_text(text)
    return root


def test_this_machine_has_some_memory_and_no_more_than_all_of_it() -> None:
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert 0 < free_bytes(CPU) <= total


def test_without_control_groups_it_is_what_linux_has_available(tmp_path: Path) -> None:
    assert free_bytes(CPU, machine(tmp_path)) == 8 * GIB


@pytest.mark.parametrize(
    ("group", "files", "left"),
    [
        ("/a/b", {"a_b_max": str(3 * GIB), "a_b_current": str(GIB)}, 2 * GIB),
        ("/a/b", {"a_b_max": "max", "a_b_current": str(GIB)}, 8 * GIB),
        ("/a/b", {"a_b_max": str(6 * GIB), "a_b_current": str(GIB), "a_b_high": str(2 * GIB)}, GIB),
        ("/a/b", {"a_b_max": "max", "a_b_current": "5", "a_max": str(4 * GIB), "a_current": str(GIB)}, 3 * GIB),
        ("/", {"max": str(2 * GIB), "current": str(GIB), "stat": f"anon 5\ninactive_file {GIB // 2}\n"}, GIB * 3 // 2),
        ("/docker/elsewhere", {"max": str(2 * GIB), "current": str(GIB)}, GIB),
        ("/a", {"a_max": str(GIB), "a_current": str(2 * GIB)}, 0),
        ("/../b", {"max": str(GIB), "current": "0"}, GIB),
    ],
)
def test_a_control_group_leaves_what_its_limit_and_those_above_it_leave(
    tmp_path: Path, group: str, files: dict[str, str], left: int
) -> None:
    assert free_bytes(CPU, machine(tmp_path, group, **files)) == left
