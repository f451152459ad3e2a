"""Texts/s beside transformers and llama-server, ITL beside embeddings: `python -m outrider.loadtest embeddings`.

First, all ways embed the same texts in turns; no text comes twice. Outrider and llama-server are asked over HTTP, a
batch at a time; transformers runs in a process of its own, without HTTP. ``control`` is Outrider in a second mesh.
Cosines are to transformers in float32. Then, chats stream without and with a client that asks for embeddings all the
time.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import math
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
from numpy.typing import NDArray
from outrider.loadtest import thresholds
from outrider.loadtest.load.turns import rotated
from outrider.loadtest.peers import llama
from outrider.loadtest.thresholds import Threshold
from outrider.measure import local_mesh
from outrider.measure.chats.library import passages
from outrider.measure.chats.supply import endless
from outrider.measure.load import client
from outrider.measure.load.client import Reply
from outrider.measure.load.summary import percentile
from outrider.native.levels import supported_levels

OURS, CONTROL, OURS_GGUF = "Outrider", "control", "Outrider, GGUF"
EXACT, THEIRS, LLAMA = "transformers float32", "transformers bfloat16", "llama-server, GGUF"
ALONE, AGAIN, BESIDE = "alone", "alone again", "beside embeddings"
_WORDS = 15, 300
"""Fewest and most words of a text: about 20 to 500 tokens."""
_WORKER = "outrider.benches.models.transformers_embeddings"
_POOLED = ["--embedding", "--pooling", "last", "-b", "2048", "-ub", "2048"]
_SLOTS = 8
_BFLOAT16 = "amx", "avx512bf16"
"""Levels of CPUs that multiply bfloat16. On others transformers takes half a minute a text."""
_TEXTS_SHARE = 0.6
"""Share of the time for the first part."""
_COSINE, _KEPT = 0.999, 0.9
Embed = Callable[[Sequence[str]], "Made"]


class Made(msgspec.Struct):
    """Embeddings, tokens of all texts, and the seconds that they took."""

    vectors: NDArray[np.float32]
    tokens: int
    seconds: float


class TextsTurn(msgspec.Struct, frozen=True):
    """Texts in one way, once; ``cosine`` is the least to transformers in float32."""

    way: str
    repeat: int
    texts: int
    tokens: int
    seconds: float
    cosine: float

    def __str__(self) -> str:
        """One line for the terminal."""
        speed = f"{self.texts / self.seconds:6.2f} texts/s {self.tokens / self.seconds:7.0f} tokens/s"
        return f"{self.repeat + 1}: {self.way:22}{speed}  least cosine {self.cosine:.5f}"


class StreamsTurn(msgspec.Struct, frozen=True):
    """Streams alone or beside embeddings, once. Times between tokens and to the first one are in milliseconds."""

    way: str
    repeat: int
    streams: int
    mean: float
    p50: float
    p95: float
    longest: float
    ttft: float
    texts_per_s: float

    def __str__(self) -> str:
        """One line for the terminal."""
        itl = f"ITL mean {self.mean:6.1f} p50 {self.p50:6.1f} p95 {self.p95:6.1f} longest {self.longest:7.1f} ms"
        beside = f", {self.texts_per_s:.2f} texts/s" if self.way == BESIDE else ""
        return f"{self.repeat + 1}: {self.streams} streams {self.way:18}{itl}, TTFT {self.ttft:.0f} ms{beside}"


def main(arguments: list[str] | None = None) -> int:
    """Measures until all turns are done or the minutes are over; prints ratios, writes JSON."""
    options = _options(arguments)
    until, texts = time.monotonic() + 60 * options.minutes, new_texts(options.seed)
    with ExitStack() as stack:
        urls = {OURS: stack.enter_context(_mesh(options.model))}
        ways: dict[str, Embed] = {OURS: partial(_ask, urls[OURS], options.batch)}
        for name, model in ((CONTROL, options.model), (OURS_GGUF, options.gguf)):
            ways[name] = partial(_ask, stack.enter_context(_mesh(model)), options.batch)
        program = llama.server(options.cache / "llama")
        served = stack.enter_context(llama.running(program, options.gguf, _POOLED, _SLOTS))
        ways[LLAMA] = partial(_ask, served, options.batch)
        worker = stack.enter_context(_transformers(options.model))
        ways[EXACT] = partial(_pipe, worker, "float32")
        if supported_levels()[0].name in _BFLOAT16:
            ways[THEIRS] = partial(_pipe, worker, "bfloat16")
        left = until - time.monotonic()
        embedded = _embed_in_turns(options, ways, texts, time.monotonic() + _TEXTS_SHARE * left)
        streamed = _stream_in_turns(options, urls[OURS], texts, until)
    settings = {key: value.name if isinstance(value, Path) else value for key, value in vars(options).items()}
    judged = [*judge_texts(embedded), *judge_streams(streamed)]
    thresholds.publish(options.out, judged, settings=settings, embedded=embedded, streamed=streamed)
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest embeddings", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="a Hugging Face directory")
    parser.add_argument("--gguf", type=Path, required=True, metavar="FILE", help="the same model for llama-server")
    parser.add_argument("--texts", type=int, default=32, help="texts of a turn")
    parser.add_argument("--batch", type=int, default=32, help="texts of a request")
    parser.add_argument("--streams", nargs="+", type=int, default=[1, 4], help="chats at a time")
    parser.add_argument("--max-tokens", type=int, default=96, help="tokens of each stream")
    parser.add_argument("--repeats", type=int, default=3, help="turns of each way")
    parser.add_argument("--minutes", type=float, default=11.0, help="time limit; later turns are left out")
    parser.add_argument("--seed", type=int, default=0, help="seed of the texts")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "outrider", help="for llama-server")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args(arguments)
    if min(options.texts, options.batch, options.repeats, *options.streams) < 1 or options.max_tokens < 2:
        parser.error("numbers must be at least 1, --max-tokens at least 2")
    return options


def new_texts(seed: int) -> Iterator[str]:
    """Texts of Python's documentation, each once, of lengths that are evenly spread on a logarithmic scale."""
    draw = random.Random(seed)
    words = (word for passage in passages(draw) for word in passage.text.split())
    least, most = map(math.log, _WORDS)
    while len(own := list(islice(words, round(math.exp(draw.uniform(least, most)))))) >= _WORDS[0]:
        yield " ".join(own)


@contextlib.contextmanager
def _mesh(model: Path) -> Iterator[str]:
    with local_mesh.running({}, proposers=None, model=model) as mesh:
        yield mesh.url


@contextlib.contextmanager
def _transformers(model: Path) -> Iterator[subprocess.Popen[bytes]]:
    command: list[str | Path] = [sys.executable, "-m", _WORKER, model]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        assert process.stdin
        process.stdin.close()


def _ask(url: str, batch: int, texts: Sequence[str]) -> Made:
    began, data, tokens = time.perf_counter(), [], 0
    for first in range(0, len(texts), batch):
        answer = httpx.post(f"{url}/v1/embeddings", json=_body(texts[first : first + batch]), timeout=None)
        body = answer.raise_for_status().json()
        data += [each["embedding"] for each in sorted(body["data"], key=lambda each: int(each["index"]))]
        tokens += body["usage"]["prompt_tokens"]
    seconds = time.perf_counter() - began
    return Made(np.stack([np.frombuffer(base64.b64decode(text), "<f4") for text in data]), tokens, seconds)


def _body(texts: Sequence[str]) -> dict[str, Any]:
    """As OpenAI's client sends it."""
    return {"input": list(texts), "encoding_format": "base64"}


def _pipe(worker: subprocess.Popen[bytes], dtype: str, texts: Sequence[str]) -> Made:
    assert worker.stdin
    assert worker.stdout
    worker.stdin.write(msgspec.json.encode({"dtype": dtype, "texts": texts}) + b"\n")
    worker.stdin.flush()
    if not (line := worker.stdout.readline()):
        raise SystemExit("transformers ended: see its output above")
    told = msgspec.json.decode(line)
    return Made(np.array(told["vectors"], np.float32), told["tokens"], told["seconds"])


def _embed_in_turns(
    options: argparse.Namespace, ways: dict[str, Embed], texts: Iterator[str], until: float
) -> list[TextsTurn]:
    warm = list(islice(texts, 2))
    for embed in ways.values():
        embed(warm)
    turns: list[TextsTurn] = []
    for repeat in range(options.repeats):
        if time.monotonic() >= until:
            break
        own = list(islice(texts, options.texts))
        made = {way: ways[way](own) for way in rotated(list(ways), repeat)}
        for way, each in made.items():
            cosine = float((each.vectors * made[EXACT].vectors).sum(1).min())
            turns.append(TextsTurn(way, repeat, len(own), each.tokens, each.seconds, cosine))
            print(turns[-1], flush=True)
    return turns


def _stream_in_turns(options: argparse.Namespace, url: str, texts: Iterator[str], until: float) -> list[StreamsTurn]:
    chats = endless("chat", options.seed)
    turns: list[StreamsTurn] = []
    for repeat in range(options.repeats):
        for streams in options.streams:
            for way in rotated([ALONE, BESIDE, AGAIN], repeat):
                if time.monotonic() >= until:
                    return turns
                bodies = [chat.body("off") for chat in islice(chats, streams)]
                more = {"max_tokens": options.max_tokens, "ignore_eos": True}
                asked = [body | more for body in bodies]
                turn = asyncio.run(_stream(url, asked, way, repeat, texts if way == BESIDE else None, options.batch))
                turns.append(turn)
                print(turn, flush=True)
    return turns


async def _stream(
    url: str, bodies: Sequence[dict[str, Any]], way: str, repeat: int, texts: Iterator[str] | None, batch: int
) -> StreamsTurn:
    done: list[int] = []
    embedding = asyncio.create_task(_keep_asking(url, texts, batch, done)) if texts else None
    await asyncio.sleep(1.0)
    began = time.perf_counter()
    done.clear()
    replies = await asyncio.gather(*(client.complete(url, body, client.CHATS) for body in bodies))
    seconds = time.perf_counter() - began
    if embedding:
        embedding.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await embedding
    return _turn(way, repeat, replies, began, sum(done) / seconds)


async def _keep_asking(url: str, texts: Iterator[str], batch: int, done: list[int]) -> None:
    """Asks for ``batch`` texts, each in a request of its own; a text that is done makes room for the next."""

    async def ask(http: httpx.AsyncClient) -> None:
        for text in texts:
            (await http.post(f"{url}/v1/embeddings", json=_body([text]))).raise_for_status()
            done.append(1)

    async with httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=None)) as http:
        await asyncio.gather(*(ask(http) for _ in range(batch)))


def _turn(way: str, repeat: int, replies: Sequence[Reply], began: float, texts_per_s: float) -> StreamsTurn:
    pauses = [1e3 * (after - before) for reply in replies for before, after in pairwise(reply.arrivals)]
    spans = sum(reply.arrivals[-1] - reply.arrivals[0] for reply in replies)
    mean = 1e3 * spans / sum(reply.completion_tokens - 1 for reply in replies)
    ttft = max(1e3 * (reply.arrivals[0] - began) for reply in replies)
    p50, p95 = percentile(pauses, 0.5), percentile(pauses, 0.95)
    return StreamsTurn(way, repeat, len(replies), mean, p50, p95, max(pauses), ttft, texts_per_s)


def judge_texts(turns: Sequence[TextsTurn]) -> Iterator[Threshold]:
    """Thresholds: ours embed the same, and as fast as others; the control says how far ratios are noise."""
    seconds = {(turn.way, turn.repeat): turn.seconds for turn in turns}
    for way in (OURS, CONTROL):
        cosine = min((turn.cosine for turn in turns if turn.way == way), default=math.nan)
        yield Threshold(f"least cosine, {way}", cosine, _COSINE)
    theirs = [(OURS, THEIRS)] if any(turn.way == THEIRS for turn in turns) else []
    for one, other in (*theirs, (OURS, EXACT), (OURS_GGUF, LLAMA), (CONTROL, OURS)):
        ratios = [value / seconds[one, repeat] for (way, repeat), value in seconds.items() if way == other]
        least = 0.0 if one == CONTROL else 1.0
        yield Threshold(f"texts/s, {one} / {other}", statistics.median(ratios) if ratios else math.nan, least)


def judge_streams(turns: Sequence[StreamsTurn]) -> Iterator[Threshold]:
    """Thresholds: streams keep most of their ITL beside embeddings; *alone again* is the control."""
    known = {(turn.way, turn.streams, turn.repeat): turn for turn in turns}
    for streams in sorted({turn.streams for turn in turns}):
        for way in (BESIDE, AGAIN):
            pairs = [
                (turn, known[way, streams, turn.repeat])
                for turn in turns
                if (turn.way, turn.streams) == (ALONE, streams) and (way, streams, turn.repeat) in known
            ]
            for figure in ("mean", "p50", "p95"):
                ratios = [getattr(alone, figure) / getattr(turn, figure) for alone, turn in pairs]
                value = statistics.median(ratios) if ratios else math.nan
                least = _KEPT if way == BESIDE else 0.0
                yield Threshold(f"ITL {figure}, alone / {way}, {streams} streams", value, least)


if __name__ == "__main__":
    sys.exit(main())
