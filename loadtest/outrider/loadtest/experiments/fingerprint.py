"""Whether an observer of encrypted streams can tell prompts apart: `python -m outrider.loadtest fingerprint`.

The attack of "Privacy Risks of Speculative Decoding in Large Language Models" (arXiv 2411.01076): of a stream only the
sizes and times of its pieces are known, and a classifier that saw earlier answers to the same prompts names the prompt.
Answers have one length in tokens, so that only what speculation and texts do tells them apart. Streams without and with
obfuscation alternate, two without for each with: of the two, one is the control of the other.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import msgspec
import numpy as np
from numpy.typing import NDArray
from outrider.loadtest import thresholds
from outrider.measure import local_mesh
from outrider.measure.load.prompts import held_out

WAYS = ("plain", "plain again", "obfuscated")
VIEWS = ("sizes", "times", "totals", "all", "text")
"""What the observer looks at: the sizes of the first pieces, the times between them, sums of a stream, all of these, or
the bytes of its text: what is left of the sizes without the constant part of each event."""
_LEAST = 200
"""Bytes that every chunk has; a smaller piece holds none."""
_LENGTH = 128
_ALONE = {"ignore_eos": True, "coalesce": False, "speculation": {"private": True}}
"""Parameters by which no answer depends on the one before."""


class Trace(msgspec.Struct, frozen=True):
    """One stream as an observer sees it: bytes of each piece, and seconds from the request to it.

    ``finished_s`` is the time of the last token, which an observer does not know.
    """

    prompt: int
    way: str
    round: int
    sizes: list[int]
    times: list[float]
    tokens: int
    finished_s: float


def features(trace: Trace, view: str, constant: int) -> NDArray[np.float64]:
    """The numbers by which ``view`` compares a trace with others; an event is ``constant`` bytes and its text."""
    times = np.diff(np.array([0.0, *trace.times]))
    sizes = np.array(trace.sizes, float)
    padded = [np.pad(values[:_LENGTH], (0, max(0, _LENGTH - len(values)))) for values in (sizes, times)]
    totals = np.array([len(sizes), sizes.sum(), trace.times[-1], trace.times[0]])
    chunks = sizes[sizes >= constant]
    if view == "text":
        return np.array([(chunks - constant * np.floor(chunks / constant)).sum()])
    return {"sizes": padded[0], "times": padded[1], "totals": totals, "all": np.concatenate([*padded, totals])}[view]


def accuracy(train: Sequence[Trace], held: Sequence[Trace], view: str) -> float:
    """The share of ``held`` traces whose nearest neighbour in ``train`` is of the same prompt.

    Features have their mean and deviation in ``train`` taken out; the distance is the sum of absolute differences.
    """
    constant = min(size for trace in train for size in trace.sizes if size >= _LEAST)
    known = np.array([features(trace, view, constant) for trace in train])
    mean, deviation = known.mean(0), known.std(0)
    deviation[deviation < 1e-9] = np.inf
    known = (known - mean) / deviation
    right = 0
    for trace in held:
        distances = np.abs(known - (features(trace, view, constant) - mean) / deviation).sum(1)
        right += train[int(distances.argmin())].prompt == trace.prompt
    return right / len(held)


async def observe(
    http: httpx.AsyncClient, asked: argparse.Namespace, prompt: int, text: str, way: str, round_: int
) -> Trace:
    """Streams an answer."""
    body = {"prompt": text, "max_tokens": asked.max_tokens, "temperature": asked.temperature, **_ALONE}
    body |= {"stream": True, "stream_options": {"include_obfuscation": way == "obfuscated"}}
    sizes, times, begun, finished = list[int](), list[float](), time.perf_counter(), 0.0
    async with http.stream("POST", "/v1/completions", json=body) as response:
        response.raise_for_status()
        async for piece in response.aiter_raw():
            sizes.append(len(piece))
            times.append(time.perf_counter() - begun)
            if b'"finish_reason":"' in piece:
                finished = times[-1]
    return Trace(prompt, way, round_, sizes, times, asked.max_tokens, finished)


async def observe_all(url: str, prompts: Sequence[str], asked: argparse.Namespace) -> list[Trace]:
    """Streams for each round, prompt and way; a round before the first one warms up."""
    traces: list[Trace] = []
    async with httpx.AsyncClient(base_url=url, timeout=600, trust_env=False) as http:
        for prompt, text in enumerate(prompts):
            await observe(http, asked, prompt, text, WAYS[0], -1)
        for round_ in range(asked.rounds):
            for prompt, text in enumerate(prompts):
                for way in WAYS if (round_ + prompt) % 2 else WAYS[::-1]:
                    traces.append(await observe(http, asked, prompt, text, way, round_))
            print(f"round {round_ + 1} of {asked.rounds}", flush=True)
    return traces


class Outcome(msgspec.Struct, frozen=True):
    """One way: the observer's accuracy by view, and medians over streams."""

    way: str
    accuracy: dict[str, float]
    tokens_per_s: float
    seconds: float
    bytes_per_token: float
    pieces: float

    def __str__(self) -> str:
        """One line for the terminal."""
        seen = ", ".join(f"{view} {share:.0%}" for view, share in self.accuracy.items())
        return (
            f"{self.way:>12}: {seen}; {self.tokens_per_s:.1f} tokens/s to the last token, {self.seconds:.2f} s to the "
            f"end, {self.bytes_per_token:.0f} bytes a token, {self.pieces:.0f} pieces"
        )


def judge(traces: Sequence[Trace], way: str) -> Outcome:
    """What the streams of ``way`` told an observer, who names those of a round by the other rounds, and their cost."""
    own = [trace for trace in traces if trace.way == way]
    rounds = sorted({trace.round for trace in own})
    return Outcome(
        way,
        {view: statistics.mean(_accuracy_in(own, each, view) for each in rounds) for view in VIEWS},
        statistics.median(trace.tokens / trace.finished_s for trace in own),
        statistics.median(trace.times[-1] for trace in own),
        statistics.median(sum(trace.sizes) / trace.tokens for trace in own),
        statistics.median(len(trace.sizes) for trace in own),
    )


def _accuracy_in(traces: Sequence[Trace], round_: int, view: str) -> float:
    held = [trace for trace in traces if trace.round == round_]
    return accuracy([trace for trace in traces if trace.round != round_], held, view)


def speed(traces: Sequence[Trace], way: str) -> float:
    """Median ratio of the time to the last token in `WAYS[0]` to that in ``way``, of one prompt in one round."""
    seconds = {(trace.way, trace.prompt, trace.round): trace.finished_s for trace in traces}
    others = [(key, value) for key, value in seconds.items() if key[0] == way]
    return statistics.median(seconds[(WAYS[0], *key[1:])] / value for key, value in others)


def main() -> None:
    """Observes and judges all ways."""
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest fingerprint", description=__doc__)
    local_mesh.add_models(parser)
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=6, help="streams for each prompt and way")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the mesh")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds must be at least 2")
    settings = dict(each.split("=", 1) for each in options.set)
    prompts = held_out()[: options.prompts]
    with local_mesh.running(settings, model=options.model, draft=options.draft) as mesh:
        traces = asyncio.run(observe_all(mesh.url, prompts, options))
    outcomes = [judge(traces, way) for way in WAYS]
    speeds = {way: speed(traces, way) for way in WAYS[1:]}
    print(*outcomes, f"chance: {1 / len(prompts):.0%}; speed beside {WAYS[0]}: {speeds}", sep="\n")
    thresholds.publish(options.out, [], settings=settings, outcomes=outcomes, speeds=speeds, traces=traces)


if __name__ == "__main__":
    main()
