"""Compares simulations with a real mesh: ``python -m outrider.loadtest.planning --model DIR``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from outrider.loadtest.meshes import local_mesh
from outrider.loadtest.planning import validation
from outrider.loadtest.planning.validation import Options


def main() -> int:
    """Runs the comparison; returns 1 if a figure misses its bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    local_mesh.add_models(parser)
    parser.add_argument("--verifiers", type=int, nargs="+", default=[1, 2], help="replica counts")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.4, 0.7, 0.9], help="loads, of what costs allow")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each verifier")
    parser.add_argument("--workload", default="mixed", help="kind of the chats")
    parser.add_argument("--max-tokens", type=int, default=128, help="most tokens of an answer")
    parser.add_argument("--requests", type=int, default=16, help="fewest requests of a load of the profile")
    parser.add_argument("--seconds", type=float, default=120, help="measured seconds of each load")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--records", type=Path, help="folder for profiles and loads")
    parser.add_argument("--out", type=Path, help="where all figures go, as JSON")
    given = parser.parse_args()
    options = Options(
        model=given.model,
        draft=given.draft,
        shares=given.shares,
        threads=given.threads,
        workload=given.workload,
        max_tokens=given.max_tokens,
        requests=given.requests,
        seconds=given.seconds,
        seed=given.seed,
        records=given.records,
    )
    rows = [row for count in given.verifiers for row in validation.compare(options, count)]
    return validation.publish(rows, given.out)


if __name__ == "__main__":
    sys.exit(main())
