"""Freezes and thaws processes."""

from __future__ import annotations

import os
import signal


def freeze(pid: int) -> None:
    """Stops a child process, and returns when all its threads stand still or the process has ended.

    A signal alone leaves threads running until the thread that received it is scheduled.
    """
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def thaw(pid: int) -> None:
    """Ends `freeze`."""
    os.kill(pid, signal.SIGCONT)
