"""Completion as a user meets it: installed by `outrider --install-completion`, asked for by Tab in a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(sys.executable).with_name("outrider")
_PATIENCE_S = 120.0
_SETUPS = {"bash": (".bashrc", "", ("bash", "-i")), "zsh": (".zshrc", "autoload -Uz compinit\n", ("zsh", "-i"))}
"""A file that an interactive shell reads, its lines before the installation, and the command of the shell."""


def shown(terminal: int, pattern: str) -> str:
    """Reads a terminal until ``pattern`` is shown."""
    text, deadline = "", time.monotonic() + _PATIENCE_S
    while not re.search(pattern, text, re.DOTALL):
        assert time.monotonic() < deadline, text
        if select.select([terminal], [], [], 1)[0]:
            text += os.read(terminal, 4096).decode(errors="replace")
    return text


@pytest.mark.skipif(not SCRIPT.exists(), reason="the script is not installed beside Python")
@pytest.mark.parametrize("shell", _SETUPS)
def test_tab_shows_commands_and_options(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    file, before, command = _SETUPS[shell]
    path = f"{SCRIPT.parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(tmp_path), "TERM": "xterm", "LANG": "C.UTF-8"}
    (tmp_path / file).write_text(before)
    install = [shell, "-c", "outrider --install-completion; true"]
    done = subprocess.run(install, env=environment, capture_output=True, text=True)
    assert (done.returncode, "installed" in done.stdout) == (0, True), done.stderr
    with (tmp_path / file).open("a") as settings:
        settings.write("\nPS1='ready> '\n")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, environment)
    try:
        shown(terminal, "ready> ")
        os.write(terminal, b"\x15outrider mod\t")
        shown(terminal, "mod.*els")
        os.write(terminal, b"\x15outrider \t\t")
        shown(terminal, "audit.*doctor.*run-batch.*stop")
        os.write(terminal, b"\x15outrider up --ali\t")
        shown(terminal, "--ali.*as")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)
