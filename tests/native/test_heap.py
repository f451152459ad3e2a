"""Freed memory leaves the process."""

from __future__ import annotations

import subprocess
import sys

_FREES = """
from outrider.native.heap import give_memory_back

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096

small = [bytearray(100_000) for _ in range(2_000)]
last = bytearray(100_000)
del small
before = resident()
give_memory_back()
print(before - resident())
"""


def test_memory_that_was_freed_before_is_given_back() -> None:
    """In a process of its own, whose heap nothing else changes."""
    done = subprocess.run([sys.executable, "-c", _FREES], check=True, capture_output=True, text=True)
    assert int(done.stdout) > 150_000_000
