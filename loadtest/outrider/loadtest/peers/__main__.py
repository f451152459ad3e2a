"""Outrider beside OpenVINO GenAI and llama.cpp, in turns, in one run: `python -m outrider.loadtest.peers`.

With ``--model DIR`` every engine answers the same chats in each of its ways, greedily and in turn. The model ends its
answers, and a speed counts the tokens generated. With ``--gguf FILE`` alone, Outrider and llama.cpp run the same file.
The answers of *prefill* have one token, behind prompts of about a
thousand.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from outrider.loadtest.load.turns import measure
from outrider.loadtest.peers import ratios, real
from outrider.measure import local_mesh

PEERS, WORKLOADS = ("openvino", "llama"), ("edit", "code", "prefill")


def main(arguments: list[str] | None = None) -> int:
    """Measures all repeats or until the minutes are over; prints a table and the thresholds, writes JSON."""
    options = read(arguments)
    with ExitStack() as stack:
        engines = real.start(options, stack)
        for reason in engines.missing:
            print(f"Left out: {reason}.", flush=True)
        turns = measure(real.plan(options), engines.ways)
    settings = {key: value.name if isinstance(value, Path) else value for key, value in vars(options).items()}
    ratios.publish(turns, real.rivals(options), options.out, settings=settings, **engines.report_fields())
    return 0


def read(arguments: list[str] | None) -> argparse.Namespace:
    """The options; a wrong option ends the program with one sentence."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if fault := next(_faults(options), ""):
        parser.error(fault)
    for key, value in real.DEFAULTS.items():
        if getattr(options, key) is None:
            setattr(options, key, value)
    return options


def _parser() -> argparse.ArgumentParser:
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "outrider"
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest.peers", description=__doc__)
    local_mesh.add_models(parser)
    parser.add_argument(
        "--gguf", type=Path, metavar="FILE", help="the model for llama.cpp, and without --model for Outrider, too"
    )
    parser.add_argument("--draft-gguf", type=Path, metavar="FILE", help="the draft model for llama.cpp")
    parser.add_argument("--peers", nargs="+", choices=PEERS, help="only these; a peer that is missing is an error")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS)
    parser.add_argument("--concurrency", nargs="+", type=int, help="requests at a time")
    parser.add_argument("--requests", type=int, default=6, help="a turn; at least two for each concurrent request")
    parser.add_argument("--max-tokens", type=int, help="most tokens of an answer; each kind has its own bound")
    parser.add_argument("--guesses", nargs="+", type=int, help="of OpenVINO's prompt lookup; each number is a way")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each case")
    parser.add_argument("--minutes", type=float, default=60.0, help="time limit; later turns are left out")
    parser.add_argument("--seed", type=int, default=0, help="seed of the requests")
    parser.add_argument("--set", action="append", default=[], metavar="SERVICE.KEY=VALUE", help="for every mesh")
    parser.add_argument("--cache", type=Path, default=cache, help="where missing peers are installed")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    return parser


def _faults(options: argparse.Namespace) -> Iterator[str]:
    if not (options.model or options.gguf):
        yield "it needs --model DIR or --gguf FILE, the model to run"
    for flag, folder in (("--model", options.model), ("--draft", options.draft)):
        if folder and not (folder / "config.json").is_file():
            yield f"{flag} {folder} is no directory of a Hugging Face model: it holds no config.json"
    for flag, file in (("--gguf", options.gguf), ("--draft-gguf", options.draft_gguf)):
        if file and not file.is_file():
            yield f"{flag} {file} is no file"
    if options.draft and not options.model:
        yield "--draft needs --model DIR"
    if options.draft_gguf and not options.gguf:
        yield "--draft-gguf needs --gguf FILE, the model that it drafts for"
    if "llama" in (options.peers or ()) and not options.gguf:
        yield "--peers llama needs --gguf FILE, the model for llama.cpp"
    if fault := [text for text in options.set if "=" not in text]:
        yield f"--set {fault[0]}: it is written as SERVICE.KEY=VALUE"
    numbers = (options.repeats, options.requests, *(options.concurrency or ()), *(options.guesses or ()))
    if min(numbers) < 1 or (options.max_tokens or 2) < 2:
        yield "numbers must be at least 1, --max-tokens at least 2"


if __name__ == "__main__":
    sys.exit(main())
