"""Hunts for tokens that drafters, batches, cancellations or late threads change.

Run as `python -m outrider.benches.verifier.hunt --minutes 15`.

Two engines of the shipped models answer the same requests in one process: one with drafters and many requests at once,
one without drafters. Most requests have a JSON schema. Some are asked twice at different times, some are cancelled, and
some of these go on behind their tokens, as after a fail-over. Some grammars count as slow, so that another thread
computes their masks, late. Grammars are compiled while steps run, and no file can be opened meanwhile. Every answer is
compared; the first ones that differ are written to ``--out``.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from outrider.engine.decode.engine import Engine
from outrider.engine.logits.deep_threads import in_deep_thread
from outrider.engine.logits.grammar import Grammar, Grammars
from outrider.engine.requests.output import Finish
from outrider.engine.requests.parameters import GrammarText, SamplingParams, Speculation
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.engine.settings import EngineSettings
from outrider.engine.target import Target
from outrider.kernels.race_sample import Truncation

_TEXT = {"type": "string", "maxLength": 30}
_ITEM = {"type": "object", "properties": {"a": {"type": "integer"}, "b": _TEXT}, "required": ["a", "b"]}
_PROPERTIES: tuple[dict[str, Any], ...] = (
    {"name": {"type": "string", "maxLength": 200}, "tags": {"type": "array", "items": _TEXT, "minItems": 10}},
    {"rows": {"type": "array", "items": _ITEM, "minItems": 5}},
    {"grid": {"type": "array", "items": {"type": "array", "items": {"enum": [0, 1, None]}}, "minItems": 9}},
    {"kind": {"enum": ["a", "b"]}, "on": {"type": "boolean"}, "names": {"type": "array", "items": _TEXT}},
)
_SCHEMAS = [{"type": "object", "properties": each, "required": list(each)} for each in _PROPERTIES]
_PENALTIES = SamplingParams(repetition_penalty=1.1, frequency_penalty=0.2)
_LATE_S = 0.001
_LATE_SHARE = 0.05
_SLOW_S = 0.01
"""What each mask of a slow grammar seems to take."""
_MOST_WRITTEN = 20


def main() -> int:
    """Hunts, prints a line a round, and returns 1 if an answer differed."""
    options = _options()
    settings = EngineSettings(threads=options.threads, audit_share=options.audit)
    hunt, began = Hunt(settings, options.seed, options.load), time.monotonic()
    while time.monotonic() - began < options.minutes * 60 and hunt.counts["streams"] < options.streams:
        hunt.round()
        minutes = (time.monotonic() - began) / 60
        print(f"{minutes:6.1f} min {dict(hunt.counts)} audits {dict(hunt.audits)}", flush=True)
    if hunt.altered and options.out:
        options.out.write_text(json.dumps(hunt.altered[:_MOST_WRITTEN]))
    return 1 if hunt.altered else 0


@dataclass
class _Stream:
    """A request, its tokens so far in the engine with drafters, and the number of tokens at which it is cancelled."""

    request: Request
    cancel_at: int | None
    moves: bool
    tokens: list[int] = field(default_factory=list)
    ended: Finish | None = None


class Hunt:
    """The two engines, and what was found. ``settings`` are those of the engine with drafters.

    Attributes:
        counts: number of streams, tokens, cancellations, moves and altered streams.
        altered: the altered streams: request, right and seen tokens.
    """

    def __init__(self, settings: EngineSettings, seed: int, load: int) -> None:
        self._dice, self._load = random.Random(seed), load
        self._target = Target.load(settings)
        model, tokenizer, place = self._target.runner.model, self._target.tokenizer, self._target.directory
        plain = Target.over(model, tokenizer, place, EngineSettings(drafters=[], threads=settings.threads))
        self._engine, self._plain = self._target.engine(), plain.engine()
        _grammars(self._target).compile(GrammarText("regex", "a"))  # opens files
        self.counts: Counter[str] = Counter(streams=0, altered=0)
        self.altered: list[dict[str, Any]] = []

    @property
    def audits(self) -> Counter[str]:
        """The audits of the engine with drafters, by outcome."""
        return self._engine.auditor.outcomes

    def round(self) -> None:
        """Answers requests of as many kinds as there are in both engines, and compares the answers."""
        wanted = list(self._requests(2 * self._load))
        with _no_descriptors():
            streams = self._speculate(wanted)
        right = dict(self._answers([replace(each, speculation=Speculation(off=True)) for each in wanted]))
        for stream in streams:
            self._compare(stream, right[stream.request.id.partition("+")[0]])

    def _requests(self, count: int) -> Iterator[Request]:
        dice = self._dice
        for index in range(count):
            chat = [
                {"role": "system", "content": f"You are a tester {dice.randrange(99)}."},
                {"role": "user", "content": dice.choice(["def parse_args(", "import os\n\nclass ", "for i in range("])},
            ]
            cut = dice.choice([Truncation(), Truncation(), Truncation(), Truncation(top_k=40), Truncation(top_p=0.9)])
            sampling = Sampling(dice.choice([1.0, 1.0, 1.0, 0.7, 0.0]), cut, dice.getrandbits(60))
            yield Request(
                id=f"{self.counts['streams']}-{index}",
                tenant=dice.choice("ab"),
                prompt=self._target.tokenizer.encode_chat(chat),
                sampling=sampling,
                max_tokens=dice.choice([40, 120, 400, 744]),
                stop_ids=self._target.model_limits.eos_ids,
                parameters=_PENALTIES if dice.random() < 0.1 else SamplingParams(),
            )

    def _grammar(self, request: Request) -> GrammarText | None:
        """The grammar of a request, which depends on its seed alone."""
        choice = request.sampling.seed % (len(_SCHEMAS) + 1)
        return GrammarText("json_schema", json.dumps(_SCHEMAS[choice])) if choice < len(_SCHEMAS) else None

    def _speculate(self, wanted: Sequence[Request]) -> list[_Stream]:
        """The streams of ``wanted``, and of some of them again, by the engine with drafters."""
        dice, engine = self._dice, self._engine
        kinds = [_grammars(self._target), _grammars(self._target, late=True)]
        streams, left, running = list[_Stream](), list(wanted), dict[str, _Stream]()
        left += [replace(each, id=f"{each.id}+again") for each in dice.sample(left, len(left) // 5)]
        compiling: list[tuple[Request, Future[Grammar]]] = []
        while left or compiling or running:
            while left and len(running) + len(compiling) < self._load:
                request = left.pop(0)
                if (message := self._grammar(request)) is None:
                    self._submit(request, running, streams)
                else:
                    grammars = kinds[dice.random() < _LATE_SHARE]
                    compiling.append((request, in_deep_thread(lambda g=grammars, m=message: g.compile(m))))  # type: ignore[misc]
            for request, grammar in [each for each in compiling if each[1].done()]:
                compiling.remove((request, grammar))
                self._submit(replace(request, grammar=grammar.result()), running, streams)
            self._step(engine, running, left)
        while engine.audit():
            pass
        return streams

    def _submit(self, request: Request, running: dict[str, _Stream], streams: list[_Stream]) -> None:
        dice = self._dice
        cancel_at = dice.randrange(1, request.max_tokens) if dice.random() < 0.2 and not request.emitted else None
        stream = _Stream(request, cancel_at, dice.random() < 0.7, list(request.emitted))
        running[request.id] = stream
        streams.append(stream)
        self._engine.submit(request)

    def _step(self, engine: Engine, running: dict[str, _Stream], left: list[Request]) -> None:
        for request, frame in engine.step().outputs:
            stream = running[request.id]
            stream.tokens += frame.tokens
            stream.ended = frame.finish or stream.ended
            if stream.ended is not None:
                del running[request.id]
        engine.audit()
        for stream in [each for each in running.values() if each.cancel_at and len(each.tokens) >= each.cancel_at]:
            engine.cancel(stream.request.id)
            self.counts["cancelled"] += 1
            if stream.moves:
                self.counts["moved"] += 1
                name = f"{stream.request.id}+moved"
                left.append(replace(stream.request, id=name, emitted=list(stream.tokens), grammar=None))
            stream.cancel_at = None

    def _answers(self, wanted: Sequence[Request]) -> Iterator[tuple[str, list[int]]]:
        """The tokens of each request by the engine without drafters."""
        grammars, tokens = _grammars(self._target), dict[str, list[int]]()
        for request in wanted:
            message = self._grammar(request)
            grammar = None if message is None else grammars.compile(message)
            tokens[request.id] = []
            self._plain.submit(replace(request, grammar=grammar))
        while self._plain.busy:
            for request, frame in self._plain.step().outputs:
                tokens[request.id] += frame.tokens
        yield from tokens.items()

    def _compare(self, stream: _Stream, right: list[int]) -> None:
        self.counts["streams"] += 1
        self.counts["tokens"] += len(stream.tokens)
        whole = stream.ended is not Finish.CANCELLED
        if stream.tokens != (right if whole else right[: len(stream.tokens)]):
            self.counts["altered"] += 1
            request = {"id": stream.request.id, "seed": stream.request.sampling.seed, "prompt": stream.request.prompt}
            self.altered.append({"request": request, "ended": stream.ended, "right": right, "seen": stream.tokens})


def _grammars(target: Target, *, late: bool = False) -> Grammars:
    """A compiler of grammars; masks of ``late`` ones seem slow, and another thread computes them late."""
    limits, seconds = target.model_limits, [0.0]

    def clock() -> float:
        if threading.current_thread().name.startswith("masks"):
            time.sleep(random.random() * _LATE_S)
        seconds[0] += _SLOW_S
        return seconds[0]

    parts = target.tokenizer.definition, limits.vocabulary_size, limits.eos_ids
    return Grammars(*parts, clock) if late else Grammars(*parts)


class _no_descriptors:  # noqa: N801
    """No file can be opened in this block."""

    def __enter__(self) -> None:
        self._limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1, self._limits[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, self._limits)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.benches.verifier.hunt", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="most minutes")
    parser.add_argument("--streams", type=int, default=100_000, help="most streams")
    parser.add_argument("--load", type=int, default=70, help="streams at once")
    parser.add_argument("--seed", type=int, default=0, help="of the requests")
    parser.add_argument("--threads", type=int, default=0, help="threads of the model; 0 for one thread a core")
    parser.add_argument("--audit", type=float, default=0.05, help="share of the answers that the engine replays")
    parser.add_argument("--out", type=Path, help="file for answers that differ")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
