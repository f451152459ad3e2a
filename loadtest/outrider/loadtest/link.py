"""What a slow link to the proposer costs: `python -m outrider.loadtest.link`.

Two meshes take turns: in one the proposer is next to the verifier, in the other it announces the address of a relay
that holds every byte back for a while, each way. Requests of the second are drafted for over that link.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from typing import Any

import uvloop
from outrider.loadtest import bars, local_mesh, turns
from outrider.loadtest.bars import Bar
from outrider.loadtest.relay import Relay
from outrider.loadtest.turns import Case, Matrix, Turn
from outrider.loadtest.workloads import Supply
from outrider.mesh.addresses import hold_port

LEAST = 0.9
"""Share of the speed beside a local proposer that is to remain."""
LOCAL = "local"
_MODES: dict[str, Any] = {"model": {"drafters": ["model"]}, "on": {}}
_FORGETFUL = {"verifier.drafters": "ngram"}
"""The far mesh answers the same prompts at every delay: no drafter may remember them."""
_WARM_UP_TOKENS = 48


def main() -> int:
    """Measures, prints a line a case and the bars, writes JSON."""
    options = _options()
    relayed, own = hold_port(), hold_port()
    linked = {"proposer.port": str(own), "proposer.advertise": f"127.0.0.1:{relayed}"}
    models = {"model": options.model, "draft": options.draft}
    with (
        local_mesh.running(_FORGETFUL, **models) as near,
        local_mesh.running(_FORGETFUL | linked, **models) as far,
    ):
        relay = Relay(own, 0.0)
        found = uvloop.run(_measure(options, near.url, far.url, relay, relayed))
    matrix = Matrix(found)
    judged = [
        Bar(f"{case}: {delay} / {LOCAL}", matrix.ratio(case, delay, LOCAL), LEAST)
        for case in matrix.cases
        for delay in matrix.modes
        if delay != LOCAL
    ]
    judged.append(Bar("bytes that crossed the link", relay.carried, 1))
    bars.publish(options.out, judged, options=vars(options), turns=found)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest.link", description=__doc__)
    parser.add_argument("--one-way-ms", type=float, nargs="+", default=[2.5, 5.0], help="what a byte takes, each way")
    parser.add_argument("--modes", nargs="+", choices=list(_MODES), default=list(_MODES))
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 1.0])
    parser.add_argument("--concurrency", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--max-tokens", type=int, default=128, help="tokens a request")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="where the figures go as JSON")
    local_mesh.add_models(parser)
    options = parser.parse_args()
    if (options.model is None) != (options.draft is None):
        parser.error("--model and --draft go together: it is the draft model's proposer that is about")
    if min(options.repeats, options.max_tokens - 1, *options.concurrency) < 1 or min(options.one_way_ms) < 0:
        parser.error("numbers must be at least 1, --max-tokens at least 2, --one-way-ms at least 0")
    return options


async def _measure(options: argparse.Namespace, near: str, far: str, relay: Relay, port: int) -> list[Turn]:
    await relay.start(port)
    found: list[Turn] = []
    for repeat in range(options.repeats):
        supply = Supply(repeat * 97)
        if repeat == 0:
            await _warm_up(options, near, far, supply)
        for mode, temperature, concurrency in itertools.product(
            options.modes, options.temperatures, options.concurrency
        ):
            case = Case(f"drafters {mode}", temperature, concurrency)
            prompts = supply.take("code", max(concurrency, 4))
            for one_way_ms in _order(options.one_way_ms, repeat):
                relay.one_way_s = (one_way_ms or 0.0) / 1e3
                url, name = (near, LOCAL) if one_way_ms is None else (far, f"{one_way_ms:g} ms each way")
                turn = await turns.take(url, name, _MODES[mode], case, prompts, options.max_tokens, repeat)
                print(turn, flush=True)
                found.append(turn)
    await relay.stop()
    return found


async def _warm_up(options: argparse.Namespace, near: str, far: str, supply: Supply) -> None:
    for temperature in options.temperatures:
        prompts = supply.take("code", 12)
        for url in (near, far):
            await turns.take(url, "warm", {}, Case("code", temperature, 4), prompts, _WARM_UP_TOKENS, 0)


def _order(one_way_ms: list[float], repeat: int) -> list[float | None]:
    """Local and each delay, in the other order every other time."""
    order = [None, *one_way_ms]
    return order if repeat % 2 == 0 else order[::-1]


if __name__ == "__main__":
    sys.exit(main())
