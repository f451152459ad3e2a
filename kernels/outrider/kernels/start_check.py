"""Whether kernels start here: ``python -m outrider.kernels.start_check``, without a GPU.

It loads the library through which Triton launches kernels, and compiles every kernel of a model, as `warm_up` does.
An image for GPUs passes in the container as it is deployed: with its user, its rights and its file systems.
"""

from __future__ import annotations

import argparse
import sys
from subprocess import SubprocessError

from outrider.kernels.catalogue import entries
from outrider.kernels.compilation import CAPABILITIES, compile_all, key, runs, target
from outrider.kernels.host_library import load_launcher
from outrider.kernels.shapes import SHAPES, names
from outrider.native.share import cores


def main() -> int:
    """Prints what was tried; the exit code is 1 at the first failure."""
    options = _options()
    try:
        load_launcher()
        print("the launcher loads", flush=True)
        for shape in options.shapes:
            for gpu in options.gpus:
                print(f"{_compile(shape, gpu)} kernels of {shape} compile for {gpu}", flush=True)
    except (OSError, RuntimeError, SubprocessError) as error:
        print(f"kernels do not start here: {error}", file=sys.stderr)
        return 1
    return 0


def _compile(shape: str, gpu: str) -> int:
    capability = CAPABILITIES[gpu]
    launches = {key(entry.launch): entry.launch for entry in entries(SHAPES[shape])}
    with target(capability):
        return len(compile_all((each for each in launches.values() if runs(each, capability)), cores()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.kernels.start_check", description=__doc__)
    parser.add_argument("--shapes", type=names(SHAPES), default=["pocket"], help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--gpus", type=names(CAPABILITIES), default=["sm_90"], help=f"of {', '.join(CAPABILITIES)}")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
