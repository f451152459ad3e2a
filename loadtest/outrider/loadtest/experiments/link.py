"""The cost of a slow link to the proposer: `python -m outrider.loadtest link`.

Two meshes take turns: in one the proposer is next to the verifier, in the other the proposer announces the address of a
relay that delays every byte, each way. ``off`` is plain decoding by the verifier of the first mesh.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from typing import Any

import uvloop
from outrider.loadtest.load import turns
from outrider.loadtest.load.code_workloads import CodeSupply
from outrider.loadtest.load.relay import Relay
from outrider.loadtest.load.turns import Case, Matrix, Turn
from outrider.loadtest.meshes import local_mesh
from outrider.loadtest.report import bars
from outrider.loadtest.report.bars import Bar
from outrider.mesh.addresses import hold_port

LEAST = 0.9
"""Least ratio of the speed over the link to the speed with a near proposer."""
LOCAL, OFF = "local", "off"
_MODES: dict[str, Any] = {"model": {"drafters": ["model"]}, "on": {}}
_FORGETFUL = {"verifier.drafters": "ngram"}
"""The far mesh answers the same prompts at every delay, so no drafter may remember answers."""
_WARM_UP_TOKENS = 48


def main() -> int:
    """Measures, prints a line a case and the bars, writes JSON."""
    options = _options()
    relay_port, proposer_port = hold_port(), hold_port()
    link_settings = {"proposer.port": str(proposer_port), "proposer.advertise": f"127.0.0.1:{relay_port}"}
    models = {"model": options.model, "draft": options.draft}
    settings = _FORGETFUL | dict(text.split("=", 1) for text in options.set)
    with (
        local_mesh.running(settings, **models) as near,
        local_mesh.running(settings | link_settings, **models) as far,
    ):
        relay = Relay(proposer_port, 0.0)
        measured_turns = uvloop.run(_measure(options, near.url, far.url, relay, relay_port))
    matrix = Matrix(measured_turns)
    for case in matrix.cases:
        if (summary := matrix.summary(case, LOCAL)) is not None:
            gain = matrix.ratio(case, LOCAL)
            print(f"{case}: {LOCAL} is at {gain:.2f} of {OFF}, with {summary.tokens_a_step:.2f} tokens a step")
    judged = [
        Bar(f"{case}: {delay} / {LOCAL}", matrix.ratio(case, delay, LOCAL), LEAST)
        for case in matrix.cases
        for delay in matrix.modes
        if delay not in (LOCAL, OFF)
    ]
    judged.append(Bar("bytes that crossed the link", relay.carried, 1))
    bars.publish(options.out, judged, options=vars(options), turns=measured_turns)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest link", description=__doc__)
    parser.add_argument("--one-way-ms", type=float, nargs="+", default=[2.5, 5.0], help="delay of a byte, each way")
    parser.add_argument("--modes", nargs="+", choices=list(_MODES), default=list(_MODES))
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 1.0])
    parser.add_argument("--concurrency", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--max-tokens", type=int, default=128, help="tokens a request")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--set", action="append", default=[], metavar="SERVICE.KEY=VALUE", help="for both meshes")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    local_mesh.add_models(parser)
    options = parser.parse_args()
    if (options.model is None) != (options.draft is None):
        parser.error("--model and --draft go together: the experiment delays the draft model's proposer")
    if wrong := [text for text in options.set if "=" not in text]:
        parser.error(f"--set {wrong[0]}: it is written as SERVICE.KEY=VALUE")
    if min(options.repeats, options.max_tokens - 1, *options.concurrency) < 1 or min(options.one_way_ms) < 0:
        parser.error("numbers must be at least 1, --max-tokens at least 2, --one-way-ms at least 0")
    return options


async def _measure(options: argparse.Namespace, near: str, far: str, relay: Relay, port: int) -> list[Turn]:
    await relay.start(port)
    measured_turns: list[Turn] = []
    delays = {f"{one_way_ms:g} ms each way": one_way_ms for one_way_ms in options.one_way_ms}
    for repeat in range(options.repeats):
        supply = CodeSupply(repeat * 97)
        if repeat == 0:
            await _warm_up(options, near, far, supply)
        for mode, temperature, concurrency in itertools.product(
            options.modes, options.temperatures, options.concurrency
        ):
            case = Case(f"drafters {mode}", temperature, concurrency)
            prompts = supply.take("code", max(concurrency, 4))
            for name in _order([OFF, LOCAL, *delays], repeat):
                relay.one_way_s = delays.get(name, 0.0) / 1e3
                url, speculation = far if name in delays else near, OFF if name == OFF else _MODES[mode]
                turn = await turns.run_turn(url, name, speculation, case, prompts, options.max_tokens, repeat)
                print(turn, flush=True)
                measured_turns.append(turn)
    await relay.stop()
    return measured_turns


async def _warm_up(options: argparse.Namespace, near: str, far: str, supply: CodeSupply) -> None:
    for temperature in options.temperatures:
        prompts = supply.take("code", 12)
        for url in (near, far):
            await turns.run_turn(url, "warm", {}, Case("code", temperature, 4), prompts, _WARM_UP_TOKENS, 0)


def _order(order: list[str], repeat: int) -> list[str]:
    """``order``, reversed in every other repeat."""
    return order if repeat % 2 == 0 else order[::-1]


if __name__ == "__main__":
    sys.exit(main())
