"""The share of the machine that this process may use: CPU cores and memory. Needs no package.

A container or a service of systemd may use less than the machine has. Linux says how much less in the affinity of the
process and in its control groups, of version 2 (https://docs.kernel.org/admin-guide/cgroup-v2.html) or 1
(https://docs.kernel.org/admin-guide/cgroup-v1). The limits of the groups above a group hold as well.

``root`` is the folder of ``proc`` and ``sys`` in all functions.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")
_VERSION_2 = ""
_ESCAPED = re.compile(r"\\([0-7]{3})")


def cores(root: Path = ROOT) -> int:
    """CPU cores that this process may use: those of its affinity and its cpusets, and no more than its quotas pay for.

    A quota of 1.5 CPUs pays for one core: threads that wait for each other all halt when a quota is used up.
    """
    usable = _affinity(root)
    for folder in _groups(root, "cpuset"):
        usable &= _cpus(folder) or usable
    return max(1, min([len(usable), *(int(quota) for quota in _quotas(root))]))


def memory(root: Path = ROOT) -> int:
    """Bytes of memory that this process may fill, with all that runs in its control groups.

    Raises:
        OSError: the system does not say how much memory there is.
    """
    return min([_meminfo(root, "MemTotal"), *(limit for _, limit in _memory_limits(root))])


def free_memory(root: Path = ROOT) -> int:
    """Bytes that this process may still take without swapping: what Linux has available and its groups leave.

    Raises:
        OSError: the system does not say how much memory there is.
    """
    left = [limit - _used(folder) + _reclaimable(folder) for folder, limit in _memory_limits(root)]
    return max(min([_meminfo(root, "MemAvailable"), *left]), 0)


def sentence(root: Path = ROOT) -> str:
    """The share, for users: ``2 of 64 cores (a quota of 2.5 CPUs), 3.5 of 251.4 GiB of memory``.

    Raises:
        OSError: the system does not say how much memory there is.
    """
    own, total = cores(root), _installed(root)
    quota = min(_quotas(root), default=float("inf"))
    why = f" (a quota of {quota:g} CPUs)" if quota < len(_affinity(root)) else ""
    used, installed = (f"{size / (1 << 30):.1f}" for size in (memory(root), _meminfo(root, "MemTotal")))
    of_cores = f"{own} of {total} cores" if own < total else f"{own} core{'s' if own > 1 else ''}"
    of_memory = used if used == installed else f"{used} of {installed}"
    return f"{of_cores}{why}, {of_memory} GiB of memory"


def _installed(root: Path) -> int:
    online = _text(root / "sys/devices/system/cpu/online")
    return len(_numbers(online)) if online else os.cpu_count() or 1


def _affinity(root: Path) -> set[int]:
    for line in _text(root / "proc/self/status").splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return _numbers(line.partition(":")[2])
    if sys.platform == "darwin":
        return set(range(os.cpu_count() or 1))
    return os.sched_getaffinity(0)


def _cpus(folder: Path) -> set[int]:
    """The cores of a cpuset; none where it sets none."""
    names = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
    return next((found for name in names if (found := _numbers(_text(folder / name)))), set())


def _numbers(ranges: str) -> set[int]:
    """The numbers of ``0-2,7``."""
    found: set[int] = set()
    for part in ranges.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal():
            found |= set(range(int(first), int(last or first) + 1))
    return found


def _quotas(root: Path) -> list[float]:
    """The quotas above the process, in CPUs."""
    found = []
    for folder in _groups(root, "cpu"):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        quota = quota or _text(folder / "cpu.cfs_quota_us")
        period = period or _text(folder / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal():  # without a quota: max, or -1
            found.append(int(quota) / int(period))
    return found


def _memory_limits(root: Path) -> Iterator[tuple[Path, int]]:
    """Each control group with a limit of memory above the process, and its least limit in bytes."""
    for folder in _groups(root, "memory"):
        texts = [_text(folder / name) for name in ("memory.max", "memory.high", "memory.limit_in_bytes")]
        if limits := [int(text) for text in texts if text.isdecimal()]:
            yield folder, min(limits)


def _used(folder: Path) -> int:
    """Bytes that a control group has taken; 0 where it does not say."""
    text = _text(folder / "memory.current") or _text(folder / "memory.usage_in_bytes")
    return int(text) if text.isdecimal() else 0


def _reclaimable(folder: Path) -> int:
    """Bytes of files in memory that a control group gives back when it needs memory, those of groups below included."""
    entries = dict(line.split() for line in _text(folder / "memory.stat").splitlines() if len(line.split()) == 2)
    names = ("inactive_file", "active_file")
    prefix = "total_" if "total_inactive_file" in entries else ""
    return sum(int(entries.get(prefix + name, 0)) for name in names)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of the process's control groups that may limit ``controller``, and of the groups above them.

    Some containers see groups of the host's names, which are not among the folders that they see; the limits of such a
    container are then in the mounted folder itself.
    """
    names = _group_names(root)
    for kind, mounted, above in _mounts(root):
        if kind not in (_VERSION_2, controller) or kind not in names:
            continue
        name = names[kind]
        if above != "/" and f"{name}/".startswith(f"{above}/"):
            name = name[len(above) :]
        group = mounted if ".." in name.split("/") else mounted / name.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(mounted))


def _group_names(root: Path) -> dict[str, str]:
    """Names of the process's control groups, by controller."""
    found: dict[str, str] = {}
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, name = line.split(":", 2)
        found |= dict.fromkeys(controllers.split(","), name)
    return found


def _mounts(root: Path) -> Iterator[tuple[str, Path, str]]:
    """Controller, folder and name of each control group that is mounted; version 2 has one for all controllers."""
    for line in _text(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        above, mounted = (_ESCAPED.sub(lambda code: chr(int(code[1], 8)), text) for text in before.split()[3:5])
        kind, _, options = after.split()[:3]
        if kind == "cgroup2":
            yield _VERSION_2, root / mounted.lstrip("/"), above
        elif kind == "cgroup":
            yield from ((option, root / mounted.lstrip("/"), above) for option in options.split(","))


def _meminfo(root: Path, name: str) -> int:
    """A value of Linux's list of memory, in bytes; all memory on macOS, which has no such list."""
    if sys.platform == "darwin":
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/meminfo has no {name}")


def _text(path: Path) -> str:
    """The text of a file without spaces around it; empty where there is no file."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
