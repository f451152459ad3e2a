"""Runs an experiment by its name: ``python -m outrider.loadtest identity --help``."""

from __future__ import annotations

import runpy
import sys
from importlib import resources


def main() -> None:
    """Runs the experiment that the first argument names, with the remaining arguments; lists all without a name."""
    rooms = resources.files("outrider.loadtest")
    names = sorted(path.name.removesuffix(".py") for path in rooms.joinpath("experiments").iterdir())
    names = [name for name in names if not name.startswith("_")]
    if len(sys.argv) < 2 or sys.argv[1] not in names:
        sys.exit(f"usage: python -m outrider.loadtest EXPERIMENT ...\nThe experiments are: {', '.join(names)}.")
    runpy.run_module(f"outrider.loadtest.experiments.{sys.argv.pop(1)}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
