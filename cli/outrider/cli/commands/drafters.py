"""The commands `outrider drafter`, which run as a process of their own: they need torch, and help does not."""

from __future__ import annotations

import subprocess
import sys

import typer

_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

drafter_app = typer.Typer(
    help="Drafters trained for a target: heads that guess what it will say.", no_args_is_help=True
)


@drafter_app.command("train", context_settings=_PASSED_ON)
def train(context: typer.Context) -> None:
    """Train a head on the target's own answers (`--help` lists the options)."""
    _run("train", context)


@drafter_app.command("eval", context_settings=_PASSED_ON)
def evaluate(context: typer.Context) -> None:
    """Measure a drafter, alone, on held-out prompts (`--help` lists the options)."""
    _run("eval", context)


def _run(command: str, context: typer.Context) -> None:
    arguments = [sys.executable, "-m", "outrider.training.drafters", command, *context.args]
    raise typer.Exit(subprocess.run(arguments, check=False).returncode)
