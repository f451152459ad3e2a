"""Runs the engine: the same tokens with and without guesses, batched, alone and on a CPU; tokens a second."""

from __future__ import annotations

import itertools
import os
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from outrider.engine.decode.engine import Engine
from outrider.engine.models import pocket
from outrider.engine.requests.parameters import GrammarText, Speculation
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.engine.settings import EngineSettings
from outrider.engine.target import Target
from outrider.engine.text import Tokenizer
from outrider.kernels.backend import choice

from gpu_proof.model import random_model, save_tokenizer
from gpu_proof.report import Report
from gpu_proof.sizes import Sizes

_SCHEMA = """{"type": "object", "required": ["name", "age"],
"properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}"""
_TEXT = (Path(__file__).parents[1] / "stages.py").read_text()
_DRAFTERS = ["ngram", "suffix", "model"]


def run(report: Report, sizes: Sizes) -> None:
    """Compares the shipped pair's tokens, then measures the model with random weights."""
    with report.attempt("the shipped pair"), _without_interpreter():
        _shipped(report, sizes)
    with report.attempt("the model with random weights"), tempfile.TemporaryDirectory() as folder:
        _random(report, sizes, Path(folder))


@contextmanager
def _without_interpreter() -> Iterator[None]:
    """Has a dry run's kernels be those of a CPU: interpreted, a step of the shipped pair takes seconds."""
    before = os.environ.pop("OUTRIDER_KERNELS", None)
    choice.cache_clear()
    yield
    if before is not None:
        os.environ["OUTRIDER_KERNELS"] = before
    choice.cache_clear()


class _Engine:
    """An engine, and answers to requests."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._names = engine, itertools.count()

    def answers(self, requests: Sequence[Request], *, off: bool, alone: bool = False) -> tuple[list[list[int]], float]:
        """Tokens of all answers, and seconds: of requests at once, or ``alone`` one after the other."""
        named = [replace(each, id=str(next(self._names)), speculation=Speculation(off=off)) for each in requests]
        said, began = defaultdict[str, list[int]](list), time.perf_counter()
        for group in [[each] for each in named] if alone else [named]:
            for request in group:
                self._engine.submit(request)
            while self._engine.busy:
                for request, frame in self._engine.step().outputs:
                    said[request.id] += frame.tokens
        return [said[each.id] for each in named], time.perf_counter() - began


def _shipped(report: Report, sizes: Sizes) -> None:
    """The shipped pair in float32: tokens with guesses and without, batched and alone, and on a CPU."""
    dry = sizes.device.type == "cpu"
    count, length = (2, sizes.answer) if dry else (24, 64)
    tokenizer = Tokenizer.load(pocket.directory("target"))
    text = tokenizer.encode(_TEXT)
    requests = [
        Request(str(i), "t", list(text[i * 8 : i * 8 + sizes.prompt]), Sampling((0.0, 0.8)[i % 2], seed=i), length)
        for i in range(count)
    ]
    engine = _Engine(_settled(sizes, model="pocket", dtype="float32", drafters=_DRAFTERS).engine())
    plain, _ = engine.answers(requests, off=True)
    guessed, _ = engine.answers(requests, off=False)
    alone, _ = engine.answers(requests[: count // 2], off=False, alone=True)
    report.check("shipped pair: the same tokens with guesses", plain == guessed)
    report.check("shipped pair: the same tokens alone", plain[: count // 2] == alone)
    on_cpu = EngineSettings(model="pocket", dtype="float32", drafters=["ngram"], pages=256)
    theirs, _ = _Engine(Target.load(on_cpu).engine()).answers(requests, off=True)
    same = sum(ours == other for ours, other in zip(plain, theirs, strict=True))
    report.figures("Shipped pair, answers equal to a CPU's (sums differ in their last bits)", equal=same, of=count)
    tokens = sum(map(len, plain))
    report.check("shipped pair: answers are whole", tokens > 0, f"{tokens} tokens")


def _settled(sizes: Sizes, **more: object) -> Target:
    return Target.load(_settings(sizes, **more))


def _settings(sizes: Sizes, **more: object) -> EngineSettings:
    most = max(sizes.streams)
    dry = sizes.device.type == "cpu"
    rows = {"max_running": most, "max_rows": 512 + most, "prefill_rows": 512, "max_waiting": 4 * most}
    rows |= {"pages": 64, "max_guesses": 2} if dry else {"pages": 64 * most}
    return EngineSettings(device=sizes.device.type, **rows, **more)  # type: ignore[arg-type]


def _random(report: Report, sizes: Sizes, folder: Path) -> None:
    """The large model: tokens a second by streams, without guesses, with them, and with a JSON Schema."""
    directory = save_tokenizer(sizes, folder / "model")
    settings = _settings(sizes, model=str(directory), drafters=["ngram", "suffix"])
    target = Target.over(random_model(sizes, graphs=True), Tokenizer.load(directory), directory, settings)
    engine, dice = _Engine(target.engine()), random.Random(0)
    grammar = target.grammars.compile(GrammarText("json_schema", _SCHEMA))
    vocabulary = int(sizes.config["vocab_size"])

    def requests(count: int) -> list[Request]:
        """Requests whose prompts no engine has seen."""
        prompts = [[dice.randrange(vocabulary) for _ in range(sizes.prompt)] for _ in range(count)]
        return [Request("", "t", prompt, _sampling(i), sizes.answer) for i, prompt in enumerate(prompts)]

    for streams in report.in_time(list(sizes.streams), "numbers of streams"):
        with report.attempt(f"{streams} streams"):
            wanted = requests(streams)  # Graphs are captured meanwhile.
            plain, guessed = (engine.answers(wanted, off=off)[0] for off in (True, False))
            report.check(f"{streams} streams: the same tokens with guesses", plain == guessed)
            schema = [replace(each, grammar=grammar) for each in requests(streams)]
            row: dict[str, float] = {}
            for name, wanted, off in (
                ("plain", requests(streams), True),
                ("guesses", requests(streams), False),
                ("schema", schema, False),
            ):
                answers, seconds = engine.answers(wanted, off=off)
                row[name] = sum(map(len, answers)) / seconds
            report.figures("Engine, model with random weights, tokens/s with prompts", streams=streams, **row)
    if torch.cuda.is_available():
        report.figures("Memory", allocated_gb=torch.cuda.max_memory_allocated() / 1e9)


def _sampling(index: int) -> Sampling:
    return Sampling((0.0, 1.0)[index % 2], seed=index)
