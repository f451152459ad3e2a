"""Threads that share the Python client's code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).parents[2] / "clients" / "python"
MAKE_TYPES = """
from __future__ import annotations
import msgspec

class Inner(msgspec.Struct):
    number: int = 0

class Outer(msgspec.Struct):
    one: Inner
    more: list[Inner]
    named: dict[str, Inner] | None = None
"""
DECODE_AT_ONCE = f"""
import sys, threading, types
from outrider_client.calls import decoded

sys.setswitchinterval(1e-6)
for number in range(150):
    module = sys.modules[f"types_{{number}}"] = types.ModuleType(f"types_{{number}}")
    exec({MAKE_TYPES!r}, module.__dict__)
    read = lambda: decoded(b'{{"one": {{}}, "more": [{{}}]}}', module.Outer)
    threads = [threading.Thread(target=read) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
"""


def test_threads_may_read_answers_of_a_new_kind_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", DECODE_AT_ONCE], cwd=CLIENT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
