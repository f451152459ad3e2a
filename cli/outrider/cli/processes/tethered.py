"""Replaces itself by a command that the kernel kills when the parent process ends.

Run by path, with the parent's process id and the command as arguments. The child itself asks for the signal before
it executes the command: Python code between fork and exec is not safe in a process with threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ties this process to its parent (prctl(2)), then executes the command, which inherits the tie."""
    parent, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == int(parent):
        os.execv(command[0], command)


if __name__ == "__main__":
    main()
