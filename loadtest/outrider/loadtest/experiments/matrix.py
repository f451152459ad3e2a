"""Chat requests of several kinds, in modes of speculation that take turns: `python -m outrider.loadtest matrix`.

Each mode has its own mesh, since a mesh keeps pages of answered requests and may remember their answers. All modes
answer the same requests within a turn, with the same tokens in strict mode; the order of modes rotates from turn to
turn. A request is used in one turn only. ``off`` is plain decoding by a mesh without a draft model, ``control`` is a
second such mesh, and ``on`` is the default of `outrider up`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec
from outrider.loadtest.chats import chat_turns, figures, modes
from outrider.loadtest.chats.modes import MODES
from outrider.loadtest.load.turns import Case, Plan, Turn, measure
from outrider.measure import local_mesh
from outrider.measure.chats.chat_request import ChatRequest
from outrider.measure.chats.supply import CONTEXT, KINDS, MIXED, WORKLOADS, ChatSupply

_WARM_UP, _WARM_UP_TOKENS = 4, 32


def main(arguments: list[str] | None = None) -> int:
    """Measures all repeats or until the minutes are over; prints a table and the thresholds, writes JSON."""
    options = _options(arguments)
    settings = {key: value for key, value in vars(options).items() if key != "out"}
    settings |= {"model": options.model.name, "draft": options.draft and options.draft.name}
    with ExitStack() as stack:
        urls = {mode: stack.enter_context(modes.running(options, mode)).url for mode in options.modes}
        turns = _measure(options, urls)
    figures.publish(turns, settings, options.out)
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest matrix", description=__doc__)
    local_mesh.add_models(parser)
    parser.set_defaults(model=modes.SHIPPED)
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=["off", "control", "on"])
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 0.7], help="of all workloads but mixed")
    parser.add_argument("--concurrency", nargs="+", type=int, default=[1, 2, 4, 8, 16])
    parser.add_argument("--requests", type=int, default=6, help="a turn; at least two for each concurrent request")
    parser.add_argument("--max-tokens", type=int, help="most tokens of an answer; each kind has its own bound")
    parser.add_argument(
        "--context", nargs=2, type=int, default=list(CONTEXT), help="fewest and most tokens of a context of rag"
    )
    parser.add_argument("--repeats", type=int, default=5, help="turns of each case")
    parser.add_argument("--minutes", type=float, default=60.0, help="time limit; later turns are left out")
    parser.add_argument("--seed", type=int, default=0, help="seed of the requests")
    parser.add_argument("--set", action="append", default=[], metavar="SERVICE.KEY=VALUE", help="for every mesh")
    parser.add_argument("--out", type=Path, default=Path("out/matrix"), help="directory of the report")
    options = parser.parse_args(arguments)
    if "off" not in options.modes:
        parser.error("--modes must name off: ratios are taken to it")
    if wrong := [text for text in options.set if "=" not in text]:
        parser.error(f"--set {wrong[0]}: it is written as SERVICE.KEY=VALUE")
    if min(options.repeats, options.requests, *options.concurrency) < 1:
        parser.error("numbers must be at least 1")
    return options


def _measure(options: argparse.Namespace, urls: dict[str, str]) -> list[Turn]:
    """Turns of all cases in every mode, repeat by repeat."""
    supply = ChatSupply(options.seed, tuple(options.context), options.max_tokens)
    warm_up = [msgspec.structs.replace(chat, max_tokens=_WARM_UP_TOKENS) for chat in supply.take("chat", _WARM_UP)]

    def requests(case: Case) -> list[ChatRequest]:
        return supply.take(case.workload, _requests(options, case), case.temperature)

    def run_turn(url: str, mode: str, case: Case, chats: Sequence[ChatRequest], repeat: int) -> Turn:
        chosen = MODES[mode]
        return chat_turns.run_turn(url, mode, chosen.speculation, case, chosen.predicted(chats), repeat)

    ways = {mode: partial(run_turn, url, mode) for mode, url in urls.items()}
    return measure(Plan(_cases(options), requests, warm_up, options.repeats, options.minutes), ways)


def _cases(options: argparse.Namespace) -> list[Case]:
    pairs = [(kind, temperature) for kind in KINDS if kind in options.workloads for temperature in options.temperatures]
    mixed = [(MIXED, None)] if MIXED in options.workloads else []
    return [Case(*pair, concurrency) for pair in (*pairs, *mixed) for concurrency in options.concurrency]


def _requests(options: argparse.Namespace, case: Case) -> int:
    """Number of requests of a turn; a mixed turn has equally many of each kind."""
    count: int = max(options.requests, 2 * case.concurrency if case.concurrency > 1 else 1)
    return -(-count // len(KINDS)) * len(KINDS) if case.workload == MIXED else count


if __name__ == "__main__":
    sys.exit(main())
