"""The command line as a process."""

from __future__ import annotations

import subprocess
import sys

CLI = [sys.executable, "-c", "from outrider.cli.main import main; main()"]


def outrider(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CLI, *arguments], capture_output=True, text=True, timeout=60)
