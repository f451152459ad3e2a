"""Command line: `python -m outrider.training.drafters train` and `eval`, which `outrider drafter` runs."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from outrider.engine.settings import EngineSettings

_TELL_S = 60.0


def parser() -> argparse.ArgumentParser:
    """The parser of both commands."""
    whole = argparse.ArgumentParser(prog="outrider drafter", description="Drafters trained for a target.")
    commands = whole.add_subparsers(dest="command", required=True)
    defaults = argparse.ArgumentDefaultsHelpFormatter
    train = commands.add_parser(
        "train", formatter_class=defaults, help="Train a drafter on answers of the target itself."
    )
    evaluate = commands.add_parser("eval", formatter_class=defaults, help="Measure a drafter on held-out prompts.")
    for command in (train, evaluate):
        command.add_argument("--target", required=True, help="a name of the Hub, a directory, a GGUF file, or pocket")
        command.add_argument("--prompts", type=Path, help="JSON Lines with messages or text and maybe kind; plain text")
        command.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
        command.add_argument("--dtype", default="auto", help="of the target's weights")
        command.add_argument("--threads", type=int, default=0, help="of the CPU; 0 for all of this process's share")
        command.add_argument("--seed", type=int, default=0, help="of prompts, answers and training")
        command.add_argument("--minutes", type=float, default=0.0, help="for all of it; 0 for no limit")
        command.add_argument(
            "--measured", type=int, default=6, help="held-out prompts of each kind to answer at the end"
        )
        command.add_argument("--measured-tokens", type=int, default=96, help="most tokens of such an answer")
    evaluate.add_argument("--drafter", required=True, help="a directory or GGUF file of a head, or a drafter's name")
    evaluate.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the drafter; may be repeated"
    )
    train.add_argument("--out", type=Path, required=True, help="directory of the drafter")
    train.add_argument("--kind", default="eagle3", help="eagle3, dspark, medusa or draft")
    train.add_argument("--draft", help="the model that a draft model begins with: a name of the Hub, or a directory")
    train.add_argument("--data", type=Path, help="directory of the target's answers [OUT/training/answers]")
    train.add_argument("--tokens", type=int, default=200_000, help="tokens of answers to learn from")
    train.add_argument("--answer-tokens", type=int, default=256, help="most tokens of an answer")
    train.add_argument("--disk-gb", type=float, default=8.0, help="most disk for answers and their states")
    train.add_argument(
        "--vocabulary", type=int, default=16384, help="ids that the head guesses, the most frequent ones"
    )
    train.add_argument("--guesses", type=int, default=5, help="tokens to guess ahead")
    train.add_argument("--layers", type=int, default=1, help="layers of the head")
    train.add_argument("--inner", type=int, default=0, help="width of its feed-forward block; 0 for the target's")
    train.add_argument("--epochs", type=int, default=4, help="times to learn from each answer")
    train.add_argument("--rate", type=float, default=0.0, help="highest step size of AdamW; 0 for that of the kind")
    train.add_argument("--batch", type=int, default=2, help="answers of a step")
    train.add_argument("--cross-entropy", type=float, default=0.1, help="weight of this part of the loss")
    train.add_argument("--variation", type=float, default=0.9, help="weight of the total variation in the loss")
    train.add_argument("--resume", action="store_true", help="go on with the run in OUT")
    return whole


class Bars:
    """Progress bars with the time that is left, one for each stage; lines on stderr where it is no terminal."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description:>8}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._console = Console(stderr=True)
        self._bars = Progress(
            *columns, TextColumn("{task.fields[note]}"), console=self._console, disable=not self._console.is_terminal
        )
        self._tasks: dict[str, TaskID] = {}
        self._told = 0.0

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def show(self, stage: str, done: float, whole: float, note: str = "") -> None:
        """Moves the bar of a stage; without a terminal, says where the stage is at its ends and every minute."""
        begins = stage not in self._tasks
        if begins:
            self._tasks[stage] = self._bars.add_task(stage, total=whole, note="")
        self._bars.update(self._tasks[stage], completed=done, total=whole, note=note)
        now = time.monotonic()
        if not self._console.is_terminal and (begins or done >= whole or now - self._told >= _TELL_S):
            self._told = now
            left = self._bars.tasks[self._tasks[stage]].time_remaining
            ahead = f", {timedelta(seconds=round(left))} left" if left else ""
            print(f"{stage}: {done:,.0f} of {whole:,.0f}{ahead} {note}".rstrip(), file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command; a wrong input ends it with exit code 1 and one sentence."""
    given = parser().parse_args(arguments)
    try:
        from outrider.engine.errors import ModelError, SettingsError
        from outrider.training.drafters.errors import TrainingError
    except ModuleNotFoundError as error:
        _end(f"training needs {error.name}: pip install 'outrider[engine]'")
    try:
        print(_train(given) if given.command == "train" else _evaluate(given))
    except (TrainingError, SettingsError, ModelError) as error:
        _end(str(error))


def _end(sentence: str) -> NoReturn:
    print(f"outrider: {sentence}", file=sys.stderr)
    raise SystemExit(1)


def _train(given: argparse.Namespace) -> str:
    from outrider.engine import store
    from outrider.training.drafters.fit import Plan
    from outrider.training.drafters.learners import Size
    from outrider.training.drafters.losses import Weights
    from outrider.training.drafters.train import Recipe, run

    plan = Plan(
        epochs=given.epochs,
        batch=given.batch,
        rate=given.rate,
        weights=Weights(given.cross_entropy, given.variation),
        seed=given.seed,
    )
    recipe = Recipe(
        settings=_settings(given),
        out=given.out,
        data=given.data or given.out / "training" / "answers",
        kind=given.kind,
        draft=None if given.draft is None else store.locate(given.draft, "draft"),
        prompts=given.prompts,
        tokens=given.tokens,
        answer=given.answer_tokens,
        disk=1e9 * given.disk_gb,
        vocabulary=given.vocabulary,
        size=Size(given.guesses, given.layers, given.inner),
        plan=plan,
        resume=given.resume,
        minutes=given.minutes,
        measured=given.measured,
        measured_tokens=given.measured_tokens,
    )
    with Bars() as bars:
        return run(recipe, bars.show)


def _evaluate(given: argparse.Namespace) -> str:
    from outrider.engine.target import Target
    from outrider.training.drafters import measure, prompts

    settings = measure.alone(_settings(given), given.drafter, dict(map(_option, given.option)))
    end = time.monotonic() + 60 * given.minutes if given.minutes else float("inf")
    wanted = measure.held_out(prompts.load(given.prompts, given.seed, sys.maxsize), given.measured)
    with Bars() as bars:
        target = Target.load(replace(settings, drafters=(), options={}, max_running=1))
        figures = measure.measure(
            target, settings, wanted, given.measured_tokens, lambda n, whole: bars.show("figures", n, whole), end
        )
    return measure.table(figures, target.cost)


def _option(text: str) -> tuple[str, object]:
    """A name and its value, which is JSON or text."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _settings(given: argparse.Namespace) -> EngineSettings:
    import torch
    from outrider.engine.library.loading import engine_settings
    from outrider.native.share import cores

    torch.set_num_threads(given.threads or cores())
    more = {"device": given.device, "dtype": given.dtype, "threads": given.threads}
    return engine_settings(given.target, None, [], more)


if __name__ == "__main__":
    main()
