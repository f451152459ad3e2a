"""This process's memory as Linux reports it."""

from __future__ import annotations

from pathlib import Path

_ASKED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def grants_huge_pages() -> bool:
    """Whether memory that asks for huge pages may have them here."""
    return _ASKED.exists() and "[never]" not in _ASKED.read_text()


def mapping_at(address: int) -> tuple[range, dict[str, str]]:
    """The addresses of the mapping that contains ``address``, and its entry in ``/proc/self/smaps``."""
    mapping: tuple[range, dict[str, str]] | None = None
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, value = line.partition(" ")
        if name.endswith(":"):
            if mapping is not None:
                mapping[1][name[:-1]] = value.strip()
        elif mapping is not None:
            return mapping
        else:
            first, last = (int(part, 16) for part in name.split("-"))
            mapping = (range(first, last), {}) if first <= address < last else None
    assert mapping is not None
    return mapping


def mapped_bytes() -> int:
    """Bytes of addresses that this process has mapped."""
    return _status("VmSize")


def resident_bytes() -> int:
    """Bytes of memory that this process holds."""
    return _status("VmRSS")


def _status(name: str) -> int:
    return int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0]) << 10
