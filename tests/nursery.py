"""Starts services as forks of a process that has imported what they all import: torch alone takes seconds of a core.

This file is also that process's program.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

from setproctitle import getproctitle

_IMPORTED = ("gateway", "kvcache", "proposer", "tokenizer", "verifier")
_OF_A_TEST = ("PYTEST_CURRENT_TEST", "LATCH_FILE", "PYTHONPATH")
"""Environment variables that may differ from the nursery's: what is imported in it reads none of them."""
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
_POLL_S = 0.02


class Child:
    """A process that a nursery started, whose parent is this process: the part of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None
        self._alone = threading.Lock()

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        with self._alone:
            if self._code is None and (ended := os.waitpid(self.pid, os.WNOHANG)) != (0, 0):
                self._code = os.waitstatus_to_exitcode(ended[1])
            return self._code

    def wait(self, timeout: float) -> int:
        """The exit code; raises `subprocess.TimeoutExpired` after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(_POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        """Sends a signal unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


def start(command: Sequence[str], environment: dict[str, str], log: Path) -> Child | subprocess.Popen[bytes]:
    """Starts ``python -m MODULE FLAG...`` or ``python -P FILE FLAG...``; output is added to ``log``.

    Where the environment is not the nursery's, the command is executed instead.
    """
    if _essential(environment) == _essential(dict(_environment())):
        return _nursery().start(command, environment, log)
    with log.open("ab") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, env=environment)


def _essential(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in _OF_A_TEST}


@cache
def _environment() -> tuple[tuple[str, str], ...]:
    return tuple((os.environ | {"OMP_NUM_THREADS": "1"}).items())


class _Nursery:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(_environment())
        )
        self._prctl, self._alone = ctypes.CDLL(None).prctl, threading.Lock()

    def start(self, command: Sequence[str], environment: dict[str, str], log: Path) -> Child:
        asked, told = self._process.stdin, self._process.stdout
        assert asked
        assert told
        log.touch()  # readers may come before the fork opens it
        with self._alone:
            self._prctl(_SUBREAPER, 1, 0, 0, 0)  # what loses its parent meanwhile becomes a child of this process
            try:
                asked.write(json.dumps([command[1:], environment, os.getcwd(), str(log)]).encode() + b"\n")
                asked.flush()
                return Child(int(told.readline()))
            finally:
                self._prctl(_SUBREAPER, 0, 0, 0, 0)

    def close(self) -> None:
        self._process.communicate()


@cache
def _nursery() -> _Nursery:
    made = _Nursery()
    atexit.register(made.close)
    return made


def main() -> None:
    """Imports, then forks one process a line of input, and writes its id; a fork becomes what the line asks for."""
    for kind in _IMPORTED:
        import_module(f"outrider.{kind}.service")
    getproctitle()  # finds where titles are written, while the environment is still in its place
    assert len(os.listdir("/proc/self/task")) == 1, "a fork has no thread but one: locks that others hold stay locked"
    for line in sys.stdin.buffer:
        pid = _fork()
        if not pid:
            return _become(*json.loads(line))
        print(pid, flush=True)


def _fork() -> int:
    """Forks a process whose parent has ended; returns 0 in it, and its id in this one."""
    reading, writing = os.pipe()
    if not (parent := os.fork()):
        if pid := os.fork():
            os.write(writing, str(pid).encode())
            os.kill(os.getpid(), signal.SIGKILL)  # ends without what Python does at an end: that is the nursery's
        os.close(reading)
        os.close(writing)
        return 0
    os.waitpid(parent, 0)
    with os.fdopen(reading, "rb") as told:
        os.close(writing)
        return int(told.read())


def _become(arguments: list[str], environment: dict[str, str], directory: str, log: str) -> None:
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    for opened, files in (
        (os.open(os.devnull, os.O_RDONLY), (0,)),
        (os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666), (1, 2)),
    ):
        for file in files:
            os.dup2(opened, file)
        os.close(opened)
    option, program, *flags = arguments
    sys.argv = [program, *flags]
    folders = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [folder for folder in folders if folder and folder not in sys.path]
    if option == "-m":
        sys.path.insert(0, directory)
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
