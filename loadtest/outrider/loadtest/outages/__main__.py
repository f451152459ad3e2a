"""Kills servers of NATS, or a whole site, under streams: `python -m outrider.loadtest.outages server`, or `site`.

``server``: every ``--every`` seconds one of three servers of NATS is killed, and started again with its store after
half of that. ``site``: two sites with a server of NATS, a gateway, a tokenizer and a verifier each, and the third
server elsewhere; all processes of the first site are killed after a third of the time, and its streams go on at the
second. Readers resume. The exit code is 1 if a stream was altered, lost or hung.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

import msgspec
import uvloop
from outrider.loadtest.outages.load import Load, longest_gap, summary
from outrider.loadtest.outages.mesh import OutageMesh, running
from outrider.loadtest.outages.servers import SERVERS
from outrider.loadtest.report import bars
from outrider.loadtest.report.bars import Bar
from outrider.mesh.telemetry import configure_logs

Outage = Callable[[OutageMesh, argparse.Namespace], Coroutine[None, None, None]]


def main() -> int:
    """Runs the load and the outage; prints what became of the streams, writes JSON."""
    options = _options()
    configure_logs("error", "console")
    load = uvloop.run(_measure(options))
    print(summary(load.records), flush=True)
    for record in load.records:
        if record.outcome != "whole":
            print(f"stream {record.number} was {record.outcome}: {record.why}")
    whole = sum(record.outcome == "whole" for record in load.records)
    judged = [Bar(f"whole streams of {len(load.records)}", whole, len(load.records))]
    streams = [msgspec.structs.replace(record, answer=[], arrivals=[]) for record in load.records]
    gaps = sorted(map(longest_gap, load.records), reverse=True)
    bars.publish(options.out, judged, options=vars(options), streams=streams, gaps_s=gaps)
    return int(whole < len(load.records))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest.outages", description=__doc__)
    parser.add_argument("outage", choices=list(OUTAGES))
    parser.add_argument("--seconds", type=float, default=120.0, help="seconds of the load")
    parser.add_argument("--every", type=float, default=10.0, help="seconds from one server's death to the next")
    parser.add_argument("--streams", type=int, default=200, help="streams to read at least")
    parser.add_argument("--concurrency", type=int, default=8, help="streams at once")
    parser.add_argument("--max-tokens", type=int, default=256, help="tokens a request")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    if min(options.streams, options.concurrency, options.max_tokens) < 1 or min(options.seconds, options.every) <= 0:
        parser.error("--streams, --concurrency and --max-tokens must be at least 1, --seconds and --every above 0")
    return options


async def _measure(options: argparse.Namespace) -> Load:
    places, gateways, outage = OUTAGES[options.outage]
    async with running(places, gateways) as mesh:
        load = Load(mesh.urls, options.max_tokens)
        await load.learn()
        print("The mesh is ready, and the answers are known.", flush=True)
        disturbing = asyncio.create_task(outage(mesh, options))
        await load.run(options.concurrency, options.seconds, options.streams)
        disturbing.cancel()
        await asyncio.wait({disturbing})
        if not disturbing.cancelled() and (error := disturbing.exception()):
            raise error
    return load


async def _server_after_server(mesh: OutageMesh, options: argparse.Namespace) -> None:
    for place in itertools.cycle(range(SERVERS)):
        await asyncio.sleep(options.every / 2)
        mesh.servers.kill(place)
        print(f"server {place} was killed", flush=True)
        await asyncio.sleep(options.every / 2)
        mesh.servers.start(place)


async def _one_site(mesh: OutageMesh, options: argparse.Namespace) -> None:
    await asyncio.sleep(options.seconds / 3)
    mesh.servers.kill(0)
    mesh.kill(mesh.sites[0])
    print("all of the first site was killed", flush=True)


OUTAGES: dict[str, tuple[list[list[int]], int, Outage]] = {
    "server": ([[0, 1, 2]], 2, _server_after_server),
    "site": ([[0], [1]], 1, _one_site),
}
"""By name: places of the servers of each site, gateways of a site, and what happens."""


if __name__ == "__main__":
    sys.exit(main())
