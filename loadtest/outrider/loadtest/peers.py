"""Outrider beside OpenVINO GenAI, in turns, in one run: `python -m outrider.loadtest.peers`.

The same prompts and numbers of tokens, greedy, one request at a time and several. The peer runs in a process of its
own, plain and with prompt lookup, and takes its prompts from a pipe; Outrider serves over HTTP, client included.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from outrider.loadtest import bars, local_mesh, peer_process, turns
from outrider.loadtest.bars import Bar
from outrider.loadtest.peer_process import Peer
from outrider.loadtest.prompts import unique
from outrider.loadtest.turns import Case
from outrider.loadtest.workloads import Supply

LEAST = 1.2
"""Outrider's best should be so many times the peer's best."""
_PEER = ("plain", "lookup")
_OURS: dict[str, tuple[str, Any]] = {"strict": ("strict", {}), "fast": ("fast", {}), "fast, off": ("fast", "off")}
"""Outrider's ways: determinism and ``speculation``."""
_WARM_UP = 4


class Speed(msgspec.Struct, frozen=True):
    """One engine's tokens a second in one way of running it, once."""

    engine: str
    way: str
    streams: int
    repeat: int
    tokens_per_s: float

    def __str__(self) -> str:
        """One line."""
        return (
            f"{self.repeat + 1}: {self.streams} at a time, {self.engine}, {self.way}: {self.tokens_per_s:.0f} tokens/s"
        )


def main() -> int:
    """Measures, prints a line a turn and the bars, writes JSON."""
    options = _options()
    found: list[Speed] = []
    with ExitStack() as stack:
        peer = stack.enter_context(peer_process.running(options.venv))
        settings = {"verifier.drafters": options.drafters}
        urls = {
            name: stack.enter_context(local_mesh.running(settings | {"verifier.determinism": name}, proposers=0)).url
            for name in ("strict", "fast")
        }
        for repeat in range(-1, options.repeats):
            found += [speed for speed in _repeat(options, peer, urls, repeat) if repeat >= 0]
    judged = [judge(found, streams) for streams in options.streams]
    medians = {f"{s.engine}, {s.way}, {s.streams}": _median(found, s.engine, s.way, s.streams) for s in found}
    for name, value in medians.items():
        print(f"{name} at a time: {value:.0f} tokens/s")
    bars.publish(
        options.out,
        judged,
        options=vars(options),
        peer=peer_process.versions(options.venv),
        medians=medians,
        speeds=found,
    )
    return 0


def _options() -> argparse.Namespace:
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest.peers", description=__doc__)
    parser.add_argument("--venv", type=Path, default=cache / "outrider" / "openvino", help="made if it is not there")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8], help="requests at a time")
    parser.add_argument("--requests", type=int, default=2, help="requests a turn for each that runs at a time")
    parser.add_argument("--max-tokens", type=int, default=128, help="tokens a request")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--drafters", default="auto", help="the verifier's own")
    parser.add_argument("--out", type=Path, help="where the figures go as JSON")
    options = parser.parse_args()
    if min(options.repeats, options.requests, options.max_tokens - 1, *options.streams) < 1:
        parser.error("numbers must be at least 1, --max-tokens at least 2")
    return options


def _repeat(options: argparse.Namespace, peer: Peer, urls: dict[str, str], repeat: int) -> list[Speed]:
    """Every engine in every way once; repeat -1 warms them up."""
    supply, found = Supply((repeat + 1) * 53), list[Speed]()
    for streams in options.streams:
        prompts = supply.take("code", max(options.requests * streams, _WARM_UP))
        ways = [("Outrider", way) for way in _OURS] + [("OpenVINO GenAI", way) for way in _PEER]
        for engine, way in ways if repeat % 2 == 0 else reversed(ways):
            if way in _OURS:
                speed = _ours(urls, way, streams, prompts, options.max_tokens, repeat)
            else:
                speed = _theirs(peer, way, streams, prompts, options.max_tokens, repeat)
            found.append(Speed(engine, way, streams, repeat, speed))
            print(found[-1], flush=True)
    return found


def _ours(urls: dict[str, str], way: str, streams: int, prompts: list[str], max_tokens: int, repeat: int) -> float:
    determinism, speculation = _OURS[way]
    case = Case("code", 0.0, streams)
    taken = turns.take(urls[determinism], way, speculation, case, prompts, max_tokens, repeat)
    return uvloop.run(taken).summary.tokens_per_s


def _theirs(peer: Peer, way: str, streams: int, prompts: list[str], max_tokens: int, repeat: int) -> float:
    headed = [next(unique([prompt], f"{way} {repeat} {number}")) for number, prompt in enumerate(prompts)]
    spoken = peer.complete(way, streams, headed, max_tokens)
    if any(len(tokens) != max_tokens for tokens in spoken.tokens):
        raise SystemExit(f"the peer's answers are of {sorted(map(len, spoken.tokens))} tokens, not of {max_tokens}")
    return spoken.tokens_per_s


def _median(found: list[Speed], engine: str, way: str, streams: int) -> float:
    wanted = (engine, way, streams)
    return statistics.median(s.tokens_per_s for s in found if (s.engine, s.way, s.streams) == wanted)


def judge(found: list[Speed], streams: int) -> Bar:
    """Best median against best median."""
    ours = max(_median(found, "Outrider", way, streams) for way in _OURS)
    theirs = max(_median(found, "OpenVINO GenAI", way, streams) for way in _PEER)
    return Bar(f"Outrider's best / OpenVINO GenAI's best, {streams} at a time", ours / theirs, LEAST)


if __name__ == "__main__":
    sys.exit(main())
