"""The cost of encryption and keys, or of watching: `python -m outrider.loadtest cost secure|watched`.

Three meshes take turns: `outrider up`, the one whose cost is measured, and a second `outrider up` as a control. They
start in this order, since a mesh that starts later may find fewer huge pages; ratios are to the mean of the plain ones.
Requests are answers of one token to one prompt, which is computed once, over connections that stay open. Streams are
answers to prompts that do not repeat; in a repeat, all meshes are asked for the same ones, and draw the same tokens.

``secure`` is `outrider up --secure`; with ``--set gateway.auth=none`` it asks for no keys, so that encryption alone is
measured. ``watched`` has every metric, traces of a twentieth of the requests, the audit log and the usage log in files,
and somebody who reads all its metrics every `SCRAPE_S` seconds. ``--set mesh.trace_ratio=1`` traces every request.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import msgspec
from outrider.loadtest.load.prompts import held_out
from outrider.loadtest.load.repeated_request import RepeatedRequest, RepeatedResult, send_repeatedly
from outrider.loadtest.load.turns import rotated
from outrider.loadtest.meshes import local_mesh
from outrider.loadtest.report import bars
from outrider.loadtest.report.bars import Bar
from outrider.mesh.access import access_to

PLAIN, CONTROL, SECURE, WATCHED = "plain", "control", "secure", "watched"
REQUESTS, TOKENS = "requests/s", "tokens/s"
LEAST: Mapping[str, Mapping[str, float]] = {
    SECURE: {REQUESTS: 0.9, TOKENS: 0.98},
    WATCHED: {REQUESTS: 0.98, TOKENS: 0.98},
}
"""Least ratios of a mesh to the plain ones."""
SCRAPE_S = 10.0
_MEASURED = {
    "mesh.metrics_names": "both",
    "gateway.metrics_tenants": "all",
    "gateway.slo_first_token_s": "1",
    "gateway.slo_output_token_s": "0.1",
    "gateway.speculation_metrics": "true",
}
_SCRAPED = ("gateway", "tokenizer", "proposer", "verifier")


class Turn(msgspec.Struct, frozen=True):
    """One load on one mesh: a rate in the unit ``load``."""

    load: str
    mesh: str
    repeat: int
    rate: float

    def __str__(self) -> str:
        """One line for the terminal."""
        return f"{self.repeat + 1}: {self.mesh}: {self.rate:.1f} {self.load}"


def main() -> int:
    """Measures, prints a line a turn and the bars, writes JSON."""
    options = _options()
    measured: list[Turn] = []
    with tempfile.TemporaryDirectory(prefix="outrider-cost-") as folder, _meshes(options, Path(folder)) as urls:
        for turn in _turns(options, urls):
            print(turn, flush=True)
            measured.append(turn)
    least = LEAST[options.mesh]
    for load in least:
        print(f"{load}: {CONTROL} is at {ratio(measured, load, CONTROL):.3f} of the mean with {PLAIN}")
    judged = [
        Bar(f"{load}, {options.mesh} / plain", ratio(measured, load, options.mesh), bar) for load, bar in least.items()
    ]
    bars.publish(options.out, judged, options=vars(options), turns=measured)
    return 0


@contextmanager
def _meshes(options: argparse.Namespace, folder: Path) -> Iterator[dict[str, str]]:
    """Runs the three meshes inside the block; their URLs by name."""
    settings = dict(text.split("=", 1) for text in options.set)
    watching = (_MEASURED | _logs(folder)) if options.mesh == WATCHED else {}
    models = {"model": options.model, "draft": options.draft, "proposers": None}
    with (
        local_mesh.running(settings, **models) as plain,
        local_mesh.running(watching | settings, secure=options.mesh == SECURE, **models) as costly,
        local_mesh.running(settings, **models) as control,
        _scraping(costly.metrics_urls(_SCRAPED) if watching else []),
    ):
        yield {PLAIN: plain.url, CONTROL: control.url, options.mesh: costly.url}


def _logs(folder: Path) -> dict[str, str]:
    return {
        "mesh.trace_exporter": f"file:{folder}/spans.jsonl",
        "mesh.trace_ratio": "0.05",
        "gateway.audit_log": f"{folder}/audit.jsonl",
        "gateway.usage_log": f"{folder}/usage.jsonl",
    }


@contextmanager
def _scraping(urls: Sequence[str]) -> Iterator[None]:
    """Reads all ``urls`` every `SCRAPE_S` seconds inside the block."""
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(SCRAPE_S):
            for url in urls:
                httpx.get(url, trust_env=False).raise_for_status()

    thread = threading.Thread(target=scrape, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def ratio(turns: list[Turn], load: str, mesh: str) -> float:
    """Median over the repeats of a mesh's rate to the mean of the two plain meshes' rates."""
    rates = {(turn.mesh, turn.repeat): turn.rate for turn in turns if turn.load == load}
    repeats = {repeat for _, repeat in rates}
    return statistics.median(
        2 * rates[mesh, repeat] / (rates[PLAIN, repeat] + rates[CONTROL, repeat]) for repeat in repeats
    )


def _turns(options: argparse.Namespace, urls: Mapping[str, str]) -> Iterator[Turn]:
    """Every load on every mesh, in another order in each repeat, behind a warm-up."""
    prompts = itertools.cycle(held_out(300))
    requests, tokens = partial(_requests, options, next(prompts)), partial(_tokens, options)
    for url in urls.values():
        requests(url)
        tokens(url, [next(prompts) for _ in range(options.streams)])
    for repeat in range(options.repeats):
        asked = [next(prompts) for _ in range(options.answers)]
        for mesh in rotated(list(urls), repeat):
            yield Turn(REQUESTS, mesh, repeat, requests(urls[mesh]))
        for mesh in rotated(list(urls), repeat):
            yield Turn(TOKENS, mesh, repeat, tokens(urls[mesh], asked))


def _requests(options: argparse.Namespace, prompt: str, url: str) -> float:
    """Requests a second."""
    body = {"prompt": prompt, "max_tokens": 1, "temperature": 1.0}
    return _result(url, [body], options.seconds, options.connections).rate


def _tokens(options: argparse.Namespace, url: str, prompts: Sequence[str]) -> float:
    """Tokens a second of answers to ``prompts``, each drawn with its own seed."""
    body = {"max_tokens": options.max_tokens, "temperature": 1.0, "ignore_eos": True, "stream": True}
    bodies = [{"prompt": prompt, "seed": seed, **body} for seed, prompt in enumerate(prompts)]
    return float(_result(url, bodies, 0, options.streams).rate * options.max_tokens)


def _result(url: str, bodies: Sequence[object], seconds: float, connections: int) -> RepeatedResult:
    access, encoded = access_to(url), [msgspec.Raw(msgspec.json.encode(body)) for body in bodies]
    return send_repeatedly(
        RepeatedRequest(f"{url}/v1/completions", encoded, seconds, connections, access.headers, ca=str(access.ca or ""))
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest cost", description=__doc__)
    parser.add_argument("mesh", choices=LEAST, help="whose cost is measured")
    parser.add_argument("--connections", type=int, default=16, help="concurrent requests")
    parser.add_argument("--streams", type=int, default=8, help="concurrent streams")
    parser.add_argument("--answers", type=int, default=32, help="streams a turn")
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens a stream")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds a turn of requests")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--set", action="append", default=[], metavar="SERVICE.KEY=VALUE", help="for all meshes")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    local_mesh.add_models(parser)
    options = parser.parse_args()
    if min(options.connections, options.streams, options.repeats, options.max_tokens) < 1 or options.seconds <= 0:
        parser.error("numbers must be above 0")
    if options.answers < options.streams:
        parser.error("--answers must be at least --streams")
    if wrong := [text for text in options.set if "=" not in text]:
        parser.error(f"--set {wrong[0]}: it is written as SERVICE.KEY=VALUE")
    return options


if __name__ == "__main__":
    sys.exit(main())
