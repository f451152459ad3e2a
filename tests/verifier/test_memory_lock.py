"""Verifiers that start together measure the free memory one after another."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from outrider.verifier.memory_lock import measuring_alone

_TAKER = """
import sys, time
from pathlib import Path
from outrider.verifier.memory_lock import measuring_alone
folder = Path(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(40):
    with measuring_alone(folder):
        free = int((folder / "free").read_text())
        time.sleep(0.001)
        (folder / "free").write_text(str(free - 1))
"""


def test_verifiers_that_start_together_measure_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "free").write_text("1000")
    command = [sys.executable, "-c", _TAKER, str(tmp_path)]
    with ExitStack() as started:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        takers = [started.enter_context(subprocess.Popen(command, **pipes)) for _ in range(3)]
        assert [taker.stdout.readline() for taker in takers] == ["ready\n"] * 3
        for taker in takers:
            print("go", file=taker.stdin, flush=True)
        assert [taker.wait(120) for taker in takers] == [0, 0, 0]
    assert (tmp_path / "free").read_text() == "880"


def test_nobody_waits_where_the_folder_cannot_be_written_or_is_not_the_users_alone(tmp_path: Path) -> None:
    (open_to_all := tmp_path / "open").mkdir()
    open_to_all.chmod(0o777)
    for folder in (tmp_path / "missing" / "below", open_to_all):
        with measuring_alone(folder), measuring_alone(folder):
            pass
    assert not any(open_to_all.iterdir())


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (mine := tmp_path / "mine").write_text("kept")
    (folder := tmp_path / "folder").mkdir(mode=0o700)
    (folder / "memory.lock").symlink_to(mine)
    with measuring_alone(folder), mine.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert mine.read_text() == "kept"


def test_a_verifier_that_measures_for_ever_keeps_no_other_waiting_for_ever(tmp_path: Path) -> None:
    with measuring_alone(tmp_path), measuring_alone(tmp_path, wait_s=0.2):
        pass
