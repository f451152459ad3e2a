"""The library through which Triton launches kernels, in a process that has neither a compiler nor a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_LOAD = "from outrider.kernels.host_library import load_launcher; load_launcher()"


def run(folder: Path, *arguments: str, launcher: Path | None = None, path: str = "/nowhere") -> tuple[int, str]:
    """The exit code and the errors of Python with these arguments, a cache of its own and this ``PATH``."""
    environment = {name: value for name, value in os.environ.items() if name not in ("TRITON_INTERPRET", "CC")}
    environment |= {"PATH": path, "TRITON_CACHE_DIR": str(folder / "cache"), "OUTRIDER_LAUNCHER": str(launcher or "")}
    environment["TRITON_CACHE_MANAGER"] = "outrider.kernels.host_library:Cache"
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("launcher")
    code, errors = run(folder, "-m", "outrider.kernels.host_library", str(folder), path=os.environ["PATH"])
    assert code == 0, errors
    return folder


def test_a_launcher_that_was_compiled_before_is_loaded_and_not_written(launcher: Path, tmp_path: Path) -> None:
    assert run(tmp_path, "-c", _LOAD, launcher=launcher) == (0, "")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_without_a_launcher_and_a_driver_the_check_of_the_start_fails_with_a_sentence(tmp_path: Path) -> None:
    code, errors = run(tmp_path, "-m", "outrider.kernels.start_check")
    assert code == 1
    assert errors.startswith("kernels do not start here: ")
