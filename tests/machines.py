"""Folders that look like `/proc` and `/sys` of machines with control groups."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

GIB = 1 << 30
_VERSION_2 = "35 24 0:30 {above} /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
_VERSION_1 = "3{n} 24 0:3{n} {above} /sys/fs/cgroup/{name} rw shared:9 - cgroup cgroup rw,{name}\n"
CONTROLLERS = ("cpu,cpuacct", "cpuset", "memory")
"""Those of version 1 that are mounted."""


def machine(
    root: Path,
    files: Mapping[str, str] | None = None,
    *,
    group: str = "/",
    version: int = 2,
    above: str = "/",
    affinity: str = "0-7",
) -> Path:
    """``root`` as a machine of 8 cores and 16 GiB, of which 8 GiB are free, with ``files`` below `/sys/fs/cgroup`.

    Args:
        group: name of the process's control group.
        version: of the control groups.
        above: name of the control group that is mounted.
        affinity: the cores that the scheduler gives the process.
    """
    mounts = _VERSION_2.format(above=above)
    names = f"0::{group}\n"
    if version == 1:
        mounts = "".join(_VERSION_1.format(n=n, above=above, name=name) for n, name in enumerate(CONTROLLERS))
        names = "".join(f"{n + 2}:{name}:{group}\n" for n, name in enumerate(CONTROLLERS)) + "0::/\n"
    memory = f"MemTotal: {16 << 20} kB\nMemFree: 7 kB\nMemAvailable:  {8 << 20} kB\n"
    system = {
        "proc/meminfo": memory,
        "proc/self/status": f"Name:\tpython\nCpus_allowed:\tff\nCpus_allowed_list:\t{affinity}\n",
        "proc/self/cgroup": names,
        "proc/self/mountinfo": f"22 1 254:0 / / rw,relatime - ext4 /dev/root rw\n{mounts}",
        "sys/devices/system/cpu/online": "0-7\n",
    }
    for name, text in {**system, **{f"sys/fs/cgroup/{name}": text for name, text in (files or {}).items()}}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root
