"""Runs the proof: `python -m gpu_proof --minutes 8 --out DIR`, or with `--dry` on a CPU.

Results are in DIR while it runs: results.jsonl and log.txt. At the end, page.md is written and printed. The exit code
is 1 if a check failed or a stage was ended.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from gpu_proof import machine
from gpu_proof.page import failed, page
from gpu_proof.report import read
from gpu_proof.stages import run_all


def main() -> int:
    """Runs all stages; prints a line for each, and the page."""
    options = _options()
    began = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    results, log = options.out / "results.jsonl", options.out / "log.txt"
    for old in (results, log):
        old.unlink(missing_ok=True)
    os.chdir(machine.ROOT)
    with tempfile.TemporaryDirectory(prefix="gpu-proof-") as scratch:
        try:
            environment = machine.environment(Path(scratch) / "site", dry=options.dry)
        except machine.PackError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        about = machine.described(options.commit) | ({"mode": "dry, on a CPU"} if options.dry else {})
        if not options.dry and about["card"] == "none":
            print("error: nvidia-smi finds no GPU here; --dry runs the proof on a CPU", file=sys.stderr)
            return 2
        print(" · ".join(f"{name} {value}" for name, value in about.items()), flush=True)
        ended = []
        seconds = 60 * options.minutes - (time.monotonic() - began)
        for each in run_all(results.absolute(), log.absolute(), seconds, environment, dry=options.dry):
            ended.append(each)
            print(f"{time.monotonic() - began:5.0f} s  {each.stage.name}: {each.how}", flush=True)
    lines = read(results)
    text = page(about, ended, lines)
    (options.out / "page.md").write_text(text)
    print(text)
    return 1 if failed(ended, lines) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gpu_proof", description=__doc__)
    parser.add_argument("--minutes", type=float, default=8.0, help="that the whole takes at most")
    parser.add_argument("--out", type=lambda text: Path(text).absolute(), default=Path("out/gpu-proof").absolute())
    parser.add_argument("--commit", default="", help="of the code, where there is no git")
    parser.add_argument("--dry", action="store_true", help="everything on a CPU, interpreted, with tiny shapes")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
