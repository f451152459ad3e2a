"""One stage in a process of its own: `python -m gpu_proof.child STAGE --results FILE --seconds N [--dry]`."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from gpu_proof.report import Report


def main() -> None:
    """Runs the stage; its findings are lines of the file."""
    parser = argparse.ArgumentParser(prog="python -m gpu_proof.child", description=__doc__)
    parser.add_argument("stage")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    from gpu_proof import sizes

    report = Report(options.stage, options.results, options.seconds)
    if options.dry:
        _speed_up_the_interpreter()
    stage = importlib.import_module(f"gpu_proof.checks.{options.stage}")
    stage.run(report, sizes.dry() if options.dry else sizes.full())


def _speed_up_the_interpreter() -> None:
    interpreting = importlib.import_module("tests.interpreting")
    interpreting.change_the_language_once()
    interpreting.multiply_in_one_order()


if __name__ == "__main__":
    main()
