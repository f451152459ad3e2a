"""Tokens a second of every mode of speculation, against plain decoding: `python -m outrider.loadtest matrix`.

Every mode runs every workload at every temperature and concurrency; modes take turns on the same prompts, several
times. Ratios are taken within a turn; the result is their median. ``off`` is plain decoding by the same verifier,
``fast`` is plain decoding by a verifier with determinism=fast, ``on`` is the mesh's own choice with all drafters
merged. Every prompt begins with its own line, so that no pages are cached; ``suffix``, which remembers answers, has its
own mesh, and forgets answers within a repeat.

With ``--model DIR`` the requests are chats as users send them: see ``--model DIR --help``.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import uvloop
from outrider.loadtest.chats import chat_matrix
from outrider.loadtest.load import turns
from outrider.loadtest.load.code_workloads import WORKLOADS, CodeSupply
from outrider.loadtest.load.turns import Case, Turn
from outrider.loadtest.meshes import local_mesh
from outrider.loadtest.report import matrix_report

MODES: dict[str, Any] = {
    "off": "off",
    "fast": "off",
    **{name: {"drafters": [name]} for name in turns.installed_drafters()},
    "on": {},
}
"""``speculation`` of each mode's requests."""
_PIECES_APART = 71
_WARM_UP = 4
_WARM_UP_TOKENS = 128


def main() -> int:
    """Measures all repeats or until the minutes are over; prints a table and the bars, writes JSON and a picture."""
    if any(argument.partition("=")[0] == "--model" for argument in sys.argv[1:]):
        return chat_matrix.main()
    options = _options()
    until = time.monotonic() + 60 * options.minutes
    measured: list[Turn] = []
    with ExitStack() as stack:
        urls = _start(options, stack)
        for repeat in range(options.repeats):
            if time.monotonic() < until:
                measured += _repeat(options, urls, repeat, until)
    settings = {key: value for key, value in vars(options).items() if key != "out"}
    matrix_report.publish(measured, settings, options.out)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest matrix", description=__doc__)
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 1.0])
    parser.add_argument("--concurrency", nargs="+", type=int, default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--max-tokens", type=int, default=128, help="tokens a request")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=34.0, help="time limit; later turns are left out")
    parser.add_argument("--drafters", default="ngram,suffix,model", help="drafters of mode on")
    parser.add_argument("--set", action="append", default=[], metavar="SERVICE.KEY=VALUE", help="for every mesh")
    parser.add_argument("--out", type=Path, default=Path("out/matrix"), help="directory of the report")
    options = parser.parse_args()
    if "off" not in options.modes:
        parser.error("--modes must name off: ratios are taken to it")
    if wrong := [text for text in options.set if "=" not in text]:
        parser.error(f"--set {wrong[0]}: it is written as SERVICE.KEY=VALUE")
    if min(options.repeats, options.max_tokens - 1, *options.concurrency) < 1:
        parser.error("numbers must be at least 1, --max-tokens at least 2")
    return options


def _repeat(options: argparse.Namespace, urls: dict[str, str], repeat: int, until: float) -> list[Turn]:
    """Runs all cases once; each repeat has other prompts, and the first warms every mesh up."""
    supply, measured = CodeSupply(repeat * _PIECES_APART), list[Turn]()
    warm = supply.take("code", max(options.concurrency))
    for case in _cases(options):
        prompts = supply.take(case.workload, _requests(case.concurrency))
        if repeat == 0 and case.workload == options.workloads[0]:
            for mode in options.modes:
                _warm_up(urls[mode], mode, case, warm)
        for turn, turn_prompts in enumerate(_shares(prompts, case.concurrency), 2 * repeat):
            modes = options.modes if (repeat + turn) % 2 == 0 else options.modes[::-1]
            for mode in modes if time.monotonic() < until else []:
                running = turns.run_turn(urls[mode], mode, MODES[mode], case, turn_prompts, options.max_tokens, turn)
                measured.append(uvloop.run(running))
                print(measured[-1], flush=True)
    return measured


def _shares(prompts: list[str], concurrency: int) -> list[list[str]]:
    """The prompts of each turn: two turns if prompts suffice, so that each mode runs early and late."""
    half = len(prompts) // 2
    return [prompts[:half], prompts[half:]] if half >= concurrency else [prompts]


def _warm_up(url: str, mode: str, case: Case, prompts: list[str]) -> None:
    """Lets a mesh measure the steps of a case, on prompts that are not measured."""
    turn_prompts = prompts[: case.concurrency] * math.ceil(_WARM_UP / case.concurrency)
    uvloop.run(turns.run_turn(url, f"warm {mode}", MODES[mode], case, turn_prompts, _WARM_UP_TOKENS, -1))


def _start(options: argparse.Namespace, stack: ExitStack) -> dict[str, str]:
    """Starts the meshes; returns the URL of each mode."""
    settings = dict(text.split("=", 1) for text in options.set)
    settings_by_mode = {
        "fast": {"verifier.determinism": "fast", "verifier.drafters": "[]"},
        "suffix": {"verifier.drafters": "suffix"},
        "medusa": {"verifier.drafters": "medusa"},
    }
    mesh_settings = {name: settings for name, settings in settings_by_mode.items() if name in options.modes}
    meshes = {
        name: stack.enter_context(local_mesh.running(settings | settings, proposers=0)).url
        for name, settings in mesh_settings.items()
    }
    main = stack.enter_context(local_mesh.running(settings | {"verifier.drafters": options.drafters}, proposers=0)).url
    return {mode: meshes.get(mode, main) for mode in options.modes}


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    axes = (options.workloads, options.temperatures, options.concurrency)
    return itertools.starmap(Case, itertools.product(*axes))


def _requests(concurrency: int) -> int:
    """Requests of a case in a repeat, within the number of held-out prompts."""
    return max(concurrency, 6 if concurrency == 1 else 8)


if __name__ == "__main__":
    sys.exit(main())
