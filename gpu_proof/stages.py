"""The stages, those that tell most first, each in a process of its own and with a limit of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_END_S = 5.0
"""Seconds that a stage may take beyond its limit, to end by itself."""
_TAIL = 12


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage: the module of `gpu_proof.checks` with its name.

    Attributes:
        name: of the module.
        title: what it shows.
        share: of the time, beside those of the other stages.
    """

    name: str
    title: str
    share: float


STAGES = (
    Stage("kernels", "Kernels beside torch at shapes of models; bits of a row among others", 22),
    Stage("kernel_tests", "The kernels' own tests", 20),
    Stage("model_tests", "Tests of models and graphs", 14),
    Stage("captures", "Graphs: capture while another thread copies, replay; dense and with experts", 12),
    Stage("model_steps", "A model of 8 B with random weights: steps with and without graphs", 20),
    Stage("limits", "Kernels beside their limits and torch's own", 14),
    Stage("streams", "The engine: tokens with and without guesses, batched, alone, and on a CPU; its speed", 16),
)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a stage ended.

    Attributes:
        stage: the stage.
        seconds: that it took.
        how: ``done``, or what ended it.
        tail: the last lines of its output where it did not end by itself.
    """

    stage: Stage
    seconds: float
    how: str
    tail: str


def run_all(
    results: Path,
    log: Path,
    seconds: float,
    environment: Mapping[str, str],
    *,
    dry: bool,
    stages: Sequence[Stage] = STAGES,
) -> Iterator[Ended]:
    """Runs all stages within ``seconds``; what a stage does not use goes to those behind it."""
    end = time.monotonic() + seconds
    for index, stage in enumerate(stages):
        share = stage.share / sum(each.share for each in stages[index:])
        yield _run(stage, (end - time.monotonic()) * share, results, log, environment, dry)


def _run(stage: Stage, limit: float, results: Path, log: Path, environment: Mapping[str, str], dry: bool) -> Ended:
    command = [sys.executable, "-m", "gpu_proof.child", stage.name, "--results", str(results)]
    command += ["--seconds", str(max(limit - _END_S, 1.0)), *(["--dry"] if dry else [])]
    began, start = time.monotonic(), log.stat().st_size if log.exists() else 0
    with log.open("ab") as out:
        out.write(f"== {stage.name}, at most {limit:.0f} s\n".encode())
        out.flush()
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=dict(environment), start_new_session=True
        )
        try:
            code = process.wait(max(limit, 1.0))
            how = "done" if code == 0 else f"ended with code {code}"
        except subprocess.TimeoutExpired:
            how = f"stopped at its limit of {limit:.0f} s"
        finally:
            _kill(process)
    return Ended(stage, time.monotonic() - began, how, "" if how == "done" else _tail(log, start))


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(log: Path, start: int) -> str:
    lines = log.read_bytes()[start:].decode(errors="replace").splitlines()
    return "\n".join(lines[-_TAIL:])
