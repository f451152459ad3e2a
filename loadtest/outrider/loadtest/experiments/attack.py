"""The effect of hostile inputs on another tenant's streams: `python -m outrider.loadtest attack`.

A tenant streams seeded answers all the time. In turns, it is left alone, attackers of other tenants make the cases of
`outrider.loadtest.hostile`, and it is left alone again, as a control. The bars: the 99th percentile of the times
between its tokens, the right answer to each case, the same processes as before, none of which has grown, and every
stream whole and as it has to be. With names, only these cases are made. Exit code 1: a bar was missed.

`python -m outrider.loadtest.attack` (`make attack`) has the attacks in which services die and stores are full.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from pathlib import Path

import msgspec
import uvloop
from outrider.loadtest.attack import victims
from outrider.loadtest.attack.verdict import Pace
from outrider.loadtest.attack.victims import Victims
from outrider.loadtest.hostile.attackers import Attackers, targets
from outrider.loadtest.hostile.case import Target
from outrider.loadtest.hostile.table import CASES
from outrider.loadtest.meshes.site import Site, open_site
from outrider.loadtest.meshes.tenant_mesh import store_tenants
from outrider.loadtest.report import bars
from outrider.loadtest.report.bars import Bar
from outrider.mesh.addresses import hold_port
from outrider.wire.tenants import Limits

SLOWDOWN = 1.2
"""Largest ratio of the 99th percentiles of times between tokens: attacked, to left alone."""
GROWTH = 0.1
"""Largest part of its memory by which a process may grow, after every case has been made once."""
_SMALL = 16 << 20
"""Bytes by which every process may grow."""
_STORED = 96 << 20
"""Bytes by which the broker may grow: it stores the records of all streams, the victim's too."""
_VICTIM = "victim"
_CONNECTIONS = 200
"""Most connections of one address: attackers and victims share one."""
_SETTLE_S = 2.0
_ALONE, _ATTACKED, _CONTROL = "alone", "attacked", "alone again"


class Measured(msgspec.Struct):
    """What was measured: the paces of each turn's three parts, faults of cases, and processes before and after."""

    turns: list[dict[str, Pace]]
    made: int
    faults: dict[str, int]
    bad_streams: list[str]
    bytes_before: dict[str, int]
    bytes_after: dict[str, int]
    pids_before: dict[str, int]
    pids_after: dict[str, int]


def main() -> int:
    """Measures, prints figures and bars, writes JSON; returns 1 if a bar was missed."""
    options = _options()
    measured = uvloop.run(_measure(options))
    for name in (_ALONE, _ATTACKED, _CONTROL):
        paces = [turn[name] for turn in measured.turns]
        print(f"{name:12} {sum(pace.tokens for pace in paces)} tokens; of each turn, ms between two: 50 %", end="")
        print(*(f" {pace.p50_s * 1e3:.2f}" for pace in paces), "; 99 %", *(f"{pace.p99_s * 1e3:.1f}" for pace in paces))
    for name, size in measured.bytes_before.items():
        print(f"{name:12} {size / (1 << 20):.0f} MiB before, {measured.bytes_after.get(name, 0) / (1 << 20):.0f} after")
    print(f"{measured.made} cases made", *measured.faults, *measured.bad_streams, sep="\n")
    judged = judge(measured)
    bars.publish(options.out, judged, options=vars(options), measured=measured)
    return int(not all(bar.met for bar in judged))


def judge(measured: Measured) -> list[Bar]:
    """The bars of what was measured."""
    attacked, control = (statistics.median(ratios) for ratios in zip(*map(_ratios, measured.turns), strict=True))
    what = "99th percentile of times between tokens, median of turns"
    judged = [
        Bar(f"{what}: alone / attacked", attacked, 1 / SLOWDOWN),
        Bar(f"{what}: alone / alone again, for comparison", control, 0),
        Bar("wrong answers to attackers, times -1", -sum(measured.faults.values()), 0),
        Bar("lost, hung or altered streams, times -1", -len(measured.bad_streams), 0),
        Bar("the same processes as before", measured.pids_before == measured.pids_after, 1),
    ]
    for name, before in measured.bytes_before.items():
        spare = before * (1 + GROWTH) + (_STORED if name == "nats" else _SMALL) - measured.bytes_after.get(name, 0)
        judged.append(Bar(f"{name}: MiB to spare of what its memory may grow by", spare / (1 << 20), 0))
    return judged


def _ratios(turn: dict[str, Pace]) -> tuple[float, float]:
    """Of one turn's 99th percentiles: left alone before and after, on average, to attacked; before to after."""
    alone, attacked, control = (turn[name].p99_s for name in (_ALONE, _ATTACKED, _CONTROL))
    return (alone + control) / 2 / attacked, alone / control


async def _measure(options: argparse.Namespace) -> Measured:
    attackers = Attackers([CASES[name] for name in options.names or CASES])
    owners = [f"attacker-{number}" for number in range(options.attackers)]
    async with open_site(stores=True) as site:
        model = str(options.model or "pocket")
        url, grpc = await _start(site, model)
        keys = await store_tenants(site.url, {name: Limits() for name in (_VICTIM, *owners)})
        own = [keys[name] for name in owners]
        async with (
            targets(url, grpc, site.url, Path(model).name, own, _CONNECTIONS) as aims,
            victims.running([url], keys[_VICTIM]) as watched,
        ):
            for name in options.names or CASES:
                await attackers.make(CASES[name], aims[0])
            return await _take_turns(site, watched, attackers, aims, options)


async def _start(site: Site, model: str) -> tuple[str, str]:
    """Starts a mesh of ``model``; returns the addresses of its gateway's doors."""
    port, grpc_port = hold_port(), hold_port()
    for kind in ("tokenizer", "verifier"):
        await site.start(kind, kind, model=model)
    bounds = {"max_connections_per_address": _CONNECTIONS, "header_s": 2.0, "body_idle_s": 2.0}
    await site.start("gateway", "gateway", port=port, grpc_port=grpc_port, auth="keys", **bounds)
    return f"http://127.0.0.1:{port}", f"127.0.0.1:{grpc_port}"


async def _take_turns(
    site: Site, watched: Victims, attackers: Attackers, aims: list[Target], options: argparse.Namespace
) -> Measured:
    before, pids, spans = _resident(site), site.pids, list[tuple[str, float, float]]()
    for _ in range(options.turns):
        for name in (_ALONE, _ATTACKED, _CONTROL):
            await asyncio.sleep(_SETTLE_S)
            began = time.monotonic()
            async with attackers.running(aims if name == _ATTACKED else []):
                await asyncio.sleep(options.seconds)
                spans.append((name, began, time.monotonic()))
    await watched.wait_until_served(time.monotonic())
    turns = [
        {name: Pace.over_span(watched.records, began, ended) for name, began, ended in spans[start : start + 3]}
        for start in range(0, len(spans), 3)
    ]
    bad = [
        f"{record.request}: {record.outcome}, {record.why}" for record in watched.records if record.outcome != "whole"
    ]
    return Measured(turns, attackers.made, dict(attackers.faults), bad, before, _resident(site), pids, site.pids)


def _resident(site: Site) -> dict[str, int]:
    """Resident bytes of each process."""
    page = os.sysconf("SC_PAGE_SIZE")
    return {name: int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page for name, pid in site.pids.items()}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest attack", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CASE", help="cases to make; without, all")
    parser.add_argument("--model", type=Path, metavar="DIR", help="a Hugging Face directory; else the shipped target")
    parser.add_argument("--attackers", type=int, default=3, help="tenants that attack at once")
    parser.add_argument("--seconds", type=float, default=6.0, help="seconds of each part of a turn")
    parser.add_argument("--turns", type=int, default=8, help="turns of three parts")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in CASES]:
        parser.error(f"there is no case {unknown[0]!r}; docs/hostile-input.md lists them")
    if min(options.attackers, options.turns) < 1 or options.seconds <= 0:
        parser.error("--attackers and --turns must be at least 1, --seconds above 0")
    return options


if __name__ == "__main__":
    sys.exit(main())
