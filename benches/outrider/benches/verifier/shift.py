"""Learning from answers, and new versions of a drafter, while the traffic changes.

`python -m outrider.benches.verifier.shift` answers rounds of chats about code, then of chats whose answers are
reports in one form. Each mode has its own engine in this process, and all chats of a round at once; modes take turns in
random order:

- ``off``: plain decoding.
- ``static``: `ngram` and `suffix`, which forgets an answer when it ends; ``control`` is the same again.
- ``learning``: both as shipped.
- ``swapped``: as ``learning``, and another version of a drafter every few seconds, of `head` where ``--head`` names
  directories, else of `ngram`.

An answer that differs from that of ``off`` is an error.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from threading import Event, Thread
from typing import Any

from outrider.engine import LLM, SamplingParams
from outrider.training.drafters import prompts

_REPORT = (
    "You write reports with the lines Subject, Category, Audience, Summary, Reasons for, Reasons against, First steps, "
    "Cost and Next review, whatever you are asked."
)
_STATIC = {"suffix": {"tokens": 1}}
_LEARNING, _STILL, _OFF, _SWAPPED = "learning", "static", "off", "swapped"
_MODES: dict[str, dict[str, Any]] = {
    _OFF: {"drafters": []},
    _STILL: _STATIC,
    "control": _STATIC,
    _LEARNING: {},
    _SWAPPED: {},
}
_FIRST, _LAST = "code", "reports"


@dataclass
class Part:
    """What one mode answered in one round: tokens, steps in which they came, seconds, differing answers."""

    mode: str
    kind: str
    round: int
    tokens: int
    steps: int
    seconds: float
    different: int


class Swaps(Thread):
    """Changes the version of a drafter every ``pause`` seconds until ``end``."""

    def __init__(self, llm: LLM, heads: Sequence[Path], pause: float) -> None:
        super().__init__()
        self._llm, self._heads, self._pause = llm, heads, pause
        self._end, self.done = Event(), 0

    def run(self) -> None:
        """Swaps until `end`."""
        versions = cycle(self._heads or [None])
        while not self._end.wait(self._pause):
            self._llm.swap("head" if self._heads else "ngram", next(versions))
            self.done += 1

    def end(self) -> None:
        """Ends the thread."""
        self._end.set()
        self.join()


def main() -> int:
    """Runs all rounds; returns 1 if an answer differed."""
    options = _options()
    draw = random.Random(options.seed)
    parts, swaps, plain = list[Part](), 0, dict[int, list[list[int]]]()
    kinds = [_FIRST] * options.rounds + [_LAST] * options.rounds
    supply = {kind: _chats(kind, options.seed) for kind in (_FIRST, _LAST)}
    with ExitStack() as stack:
        llms = {mode: stack.enter_context(_llm(options, mode)) for mode in options.modes}
        for number, kind in enumerate(kinds):
            chats = list(islice(supply[kind], options.streams))
            others = draw.sample(options.modes[1:], len(options.modes) - 1)
            for mode in [_OFF, *others]:
                with _swapping(llms[mode], options, mode) as swapping:
                    part, ids = _answer(llms[mode], chats, options, Part(mode, kind, number, 0, 0, 0.0, 0))
                plain.setdefault(number, ids)
                part.different = sum(one != other for one, other in zip(ids, plain[number], strict=True))
                parts, swaps = [*parts, part], swaps + (swapping.done if swapping else 0)
                print(
                    f"{part}, {part.tokens / part.steps:.2f} tokens a step, {part.tokens / part.seconds:.1f} tokens/s",
                    flush=True,
                )
    return _conclude(options, parts, swaps)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.benches.verifier.shift", description=__doc__)
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--modes", nargs="+", choices=list(_MODES), default=list(_MODES))
    parser.add_argument("--head", type=Path, nargs="+", default=[], help="heads that `swapped` changes in turns")
    parser.add_argument("--streams", type=int, default=200, help="chats of a round, all at once")
    parser.add_argument("--running", type=int, default=8, help="sequences of a step; the others wait")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of each kind")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--pause", type=float, default=4.0, help="seconds between two versions")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    if options.modes[0] != _OFF:
        parser.error("--modes must begin with off: answers are compared with it")
    if min(options.streams, options.running, options.rounds, options.max_tokens) < 1:
        parser.error("numbers must be at least 1")
    return options


def _llm(options: argparse.Namespace, mode: str) -> LLM:
    settings: dict[str, Any] = {"drafters": ["ngram", "suffix"], "max_running": options.running}
    if mode == _OFF:
        return LLM(options.model, **settings | _MODES[mode])
    drafter_options = dict(_MODES[mode])
    if mode == _SWAPPED and options.head:
        settings["drafters"] = [*settings["drafters"], "head"]
        drafter_options["head"] = {"model": str(options.head[0])}
    return LLM(options.model, **settings, options=drafter_options)


def _chats(kind: str, seed: int) -> Iterator[list[dict[str, str]]]:
    wanted = "code" if kind == _FIRST else "chat"
    for prompt in prompts.load(None, seed, sys.maxsize):
        if prompt.kind == wanted and not isinstance(prompt.said, str):
            system = [{"role": "system", "content": _REPORT}] if kind == _LAST else []
            yield [*system, *prompt.said]


@contextmanager
def _swapping(llm: LLM, options: argparse.Namespace, mode: str) -> Iterator[Swaps | None]:
    if mode != _SWAPPED:
        yield None
        return
    swaps = Swaps(llm, options.head, options.pause)
    swaps.start()
    try:
        yield swaps
    finally:
        swaps.end()


def _answer(
    llm: LLM, chats: list[list[dict[str, str]]], options: argparse.Namespace, part: Part
) -> tuple[Part, list[list[int]]]:
    began = time.monotonic()
    results = llm.chat(chats, SamplingParams(temperature=0.0, max_tokens=options.max_tokens))
    part.seconds = time.monotonic() - began
    for result in results:
        assert result.usage is not None
        part.tokens += result.usage.completion_tokens
        part.steps += result.usage.steps
    return part, [result.token_ids for result in results]


def _conclude(options: argparse.Namespace, parts: list[Part], swaps: int) -> int:
    different = sum(part.different for part in parts)
    print(f"{different} of {options.streams * len(parts)} answers differ; {swaps} swaps")
    last = max(part.round for part in parts)
    ratios = {
        mode: round(_speed(parts, mode, last) / _speed(parts, _STILL, last), 3)
        for mode in options.modes
        if _STILL in options.modes
    }
    print(f"tokens/s in the last round, over {_STILL}: {ratios}")
    if options.out:
        told = {"parts": list(map(asdict, parts)), "ratios": ratios, "swaps": swaps, "different": different}
        options.out.write_text(json.dumps(told, indent=2) + "\n")
    return int(different > 0)


def _speed(parts: list[Part], mode: str, number: int) -> float:
    part = next(part for part in parts if (part.mode, part.round) == (mode, number))
    return part.tokens / part.seconds


if __name__ == "__main__":
    sys.exit(main())
