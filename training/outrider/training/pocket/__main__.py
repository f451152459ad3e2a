"""Command line of the recipe: `python -m outrider.training.pocket --out DIR`."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from outrider.training.pocket.corpus import standard_library
from outrider.training.pocket.pipeline import Pipeline, Recipe, pick_device, pick_workers, plans


def parser() -> argparse.ArgumentParser:
    """The parser of the options."""
    options = argparse.ArgumentParser(prog="python -m outrider.training.pocket", description=__doc__)
    options.add_argument(
        "--out",
        type=Path,
        required=True,
        help="folder for checkpoints and results; training resumes from its checkpoints",
    )
    options.add_argument(
        "--minutes", type=float, default=120.0, help="training time of all three models (default: 120)"
    )
    options.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    options.add_argument("--workers", type=int, default=0, help="processes on CPU (default: one a core, at most four)")
    options.add_argument(
        "--library", type=Path, default=None, help="folder of Python source (default: the interpreter's own)"
    )
    options.add_argument("--seed", type=int, default=0)
    return options


def main() -> None:
    """Trains the pocket models and writes them to `--out`/weights."""
    arguments = parser().parse_args()
    if arguments.minutes <= 0:
        parser().error("--minutes must be above zero")
    device = pick_device(arguments.device)
    torch.set_num_threads(1)
    target, draft, medusa = plans(arguments.minutes, device, arguments.workers or pick_workers(device), arguments.seed)
    library = arguments.library or standard_library()
    recipe = Recipe(arguments.out, library, target, draft, medusa, seed=arguments.seed)
    print(f"the models are in {Pipeline(recipe).run()}")


if __name__ == "__main__":
    main()
