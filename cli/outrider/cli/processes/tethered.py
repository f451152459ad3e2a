"""Becomes another program, which the kernel kills as soon as the process that asked for it is gone.

Run by path with the asking process's id and the command. The signal is set in the child itself, before it
becomes the command, since Python code between fork and exec is not safe in a process with threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ties this process to its parent (prctl(2)), then executes the command (the tie outlives that)."""
    parent, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == int(parent):
        os.execv(command[0], command)


if __name__ == "__main__":
    main()
