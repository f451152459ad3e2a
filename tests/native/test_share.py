"""The share of a machine that a process may use, as Linux and its control groups say."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from outrider.native import share

from tests.machines import GIB, machine

UNLIMITED_1 = "9223372036854771712\n"
"""What version 1 says where memory has no limit."""


def test_this_machine_gives_no_more_than_it_has() -> None:
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert 0 < share.free_memory() <= total
    assert 0 < share.memory() <= total
    assert 1 <= share.cores() <= len(os.sched_getaffinity(0))


def test_without_control_groups_a_process_has_its_affinity_and_what_linux_has_available(tmp_path: Path) -> None:
    root = machine(tmp_path, affinity="1-3,6")
    (root / "proc/self/mountinfo").unlink()
    assert (share.cores(root), share.free_memory(root), share.memory(root)) == (4, 8 * GIB, 16 * GIB)


@pytest.mark.parametrize(
    ("group", "files", "cores"),
    [
        ("/", {}, 8),
        ("/", {"cpu.max": "200000 100000\n"}, 2),
        ("/", {"cpu.max": "max 100000\n"}, 8),
        ("/", {"cpu.max": "150000 100000\n"}, 1),
        ("/", {"cpu.max": "5000 100000\n"}, 1),
        ("/", {"cpu.max": "1600000 100000\n"}, 8),
        ("/a/b", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n"}, 3),
        ("/a/b", {"a/b/cpu.max": "200000 50000\n", "a/cpu.max": "500000 100000\n"}, 4),
        ("/a", {"a/cpuset.cpus.effective": "0-1,5\n"}, 3),
        ("/a", {"a/cpuset.cpus.effective": "\n", "cpuset.cpus.effective": "0-5\n"}, 6),
        ("/a", {"a/cpuset.cpus.effective": "0-5\n", "a/cpu.max": "400000 100000\n"}, 4),
        ("/docker/elsewhere", {"cpu.max": "200000 100000\n"}, 2),
        ("/../b", {"cpu.max": "200000 100000\n"}, 2),
    ],
)
def test_cores_are_the_least_of_affinity_cpusets_and_quotas(
    tmp_path: Path, group: str, files: dict[str, str], cores: int
) -> None:
    assert share.cores(machine(tmp_path, files, group=group)) == cores


def test_cores_of_a_cpuset_beside_the_affinity_do_not_count(tmp_path: Path) -> None:
    root = machine(tmp_path, {"cpuset.cpus.effective": "0-3"}, affinity="2-7")
    assert share.cores(root) == 2


@pytest.mark.parametrize(
    ("above", "group", "files", "cores"),
    [
        ("/", "/a", {"cpu,cpuacct/a/cpu.cfs_quota_us": "200000", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"}, 2),
        ("/", "/a", {"cpu,cpuacct/a/cpu.cfs_quota_us": "-1", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"}, 8),
        ("/", "/a", {"cpuset/a/cpuset.effective_cpus": "4-6"}, 3),
        ("/", "/a", {"cpuset/a/cpuset.cpus": "4-6"}, 3),
        ("/", "/a/b", {"cpu,cpuacct/a/cpu.cfs_quota_us": "50000", "cpu,cpuacct/a/cpu.cfs_period_us": "10000"}, 5),
        ("/docker/x", "/docker/x", {"cpu,cpuacct/cpu.cfs_quota_us": "9", "cpu,cpuacct/cpu.cfs_period_us": "3"}, 3),
        (
            "/docker/x",
            "/docker/x/y",
            {"cpu,cpuacct/y/cpu.cfs_quota_us": "9", "cpu,cpuacct/y/cpu.cfs_period_us": "3"},
            3,
        ),
    ],
)
def test_control_groups_of_version_1_limit_cores_as_well(
    tmp_path: Path, above: str, group: str, files: dict[str, str], cores: int
) -> None:
    assert share.cores(machine(tmp_path, files, version=1, above=above, group=group)) == cores


@pytest.mark.parametrize(
    ("group", "files", "left"),
    [
        ("/a/b", {"a/b/memory.max": f"{3 * GIB}\n", "a/b/memory.current": f"{GIB}\n"}, 2 * GIB),
        ("/a/b", {"a/b/memory.max": "max\n", "a/b/memory.current": f"{GIB}\n"}, 8 * GIB),
        (
            "/a/b",
            {"a/b/memory.max": str(6 * GIB), "a/b/memory.current": str(GIB), "a/b/memory.high": str(2 * GIB)},
            GIB,
        ),
        ("/a/b", {"a/b/memory.max": "max", "a/memory.max": str(4 * GIB), "a/memory.current": str(GIB)}, 3 * GIB),
        (
            "/",
            {
                "memory.max": str(2 * GIB),
                "memory.current": str(GIB),
                "memory.stat": f"anon 5\ninactive_file {GIB // 2}\n",
            },
            GIB * 3 // 2,
        ),
        ("/docker/elsewhere", {"memory.max": str(2 * GIB), "memory.current": str(GIB)}, GIB),
        ("/a", {"a/memory.max": str(GIB), "a/memory.current": str(2 * GIB)}, 0),
        ("/../b", {"memory.max": str(GIB), "memory.current": "0"}, GIB),
    ],
)
def test_a_control_group_leaves_what_its_limit_and_those_above_it_leave(
    tmp_path: Path, group: str, files: dict[str, str], left: int
) -> None:
    assert share.free_memory(machine(tmp_path, files, group=group)) == left


@pytest.mark.parametrize(
    ("files", "limit", "left"),
    [
        ({"limit_in_bytes": str(3 * GIB), "usage_in_bytes": str(GIB)}, 3 * GIB, 2 * GIB),
        ({"limit_in_bytes": UNLIMITED_1, "usage_in_bytes": str(GIB)}, 16 * GIB, 8 * GIB),
        (
            {
                "limit_in_bytes": str(2 * GIB),
                "usage_in_bytes": str(GIB),
                "stat": f"inactive_file 1\nactive_file 2\ntotal_inactive_file {GIB // 2}\ntotal_active_file 7\n",
            },
            2 * GIB,
            GIB * 3 // 2 + 7,
        ),
    ],
)
def test_control_groups_of_version_1_limit_memory_as_well(
    tmp_path: Path, files: dict[str, str], limit: int, left: int
) -> None:
    root = machine(tmp_path, {f"memory/a/memory.{name}": text for name, text in files.items()}, version=1, group="/a")
    assert (share.memory(root), share.free_memory(root)) == (limit, left)


@pytest.mark.parametrize(
    ("files", "affinity", "sentence"),
    [
        ({}, "0-7", "8 cores, 16.0 GiB of memory"),
        ({}, "3", "1 of 8 cores, 16.0 GiB of memory"),
        (
            {"cpu.max": "250000 100000", "memory.max": str(7 * GIB // 2)},
            "0-7",
            "2 of 8 cores (a quota of 2.5 CPUs), 3.5 of 16.0 GiB of memory",
        ),
    ],
)
def test_the_share_is_said_in_a_sentence(tmp_path: Path, files: dict[str, str], affinity: str, sentence: str) -> None:
    assert share.sentence(machine(tmp_path, files, affinity=affinity)) == sentence


@pytest.fixture
def real_group() -> Iterator[Path]:
    """A control group of this machine's with a quota of one CPU, and nothing in it."""
    mounts = {Path("/sys/fs/cgroup/cpu"): "cpu.cfs_quota_us", Path("/sys/fs/cgroup"): "cpu.max"}
    for mounted, name in mounts.items():
        folder = mounted / f"outrider-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            (folder / name).write_text("100000")
            yield folder
            return
        except OSError:
            continue
        finally:
            folder.rmdir()
    pytest.skip("no control group with a quota can be made here")


def test_a_quota_of_this_machine_is_read(real_group: Path) -> None:
    code = "from pathlib import Path; from outrider.native.share import cores; print(cores())"
    join = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(real_group)]
    done = subprocess.run([*join, sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
