"""Effect of one tenant's flood on another, and service by weight: `python -m outrider.loadtest fairness`.

Two gateways share a verifier with few slots. First, a polite tenant with few clients measures its latencies in turns:
beside a neighbour that keeps the remaining slots busy, so that no request waits, and beside the same neighbour when it
floods one gateway with more requests than the verifier's queue takes. Both have the same weight, and the polite tenant
uses less than its share of the slots, so the flood should cost it little. Then tenants of different weights always have
requests waiting, and their service should be proportional to their weights. Exit code 1: a bar was missed.

With `--verifiers 2` or more, and past the gateways: two tenants of weights 10 to 1 always have requests waiting, spread
evenly over the verifiers, mostly at one of them, and only at one; their service at all verifiers together should be
proportional to their weights.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import sys
from pathlib import Path

import msgspec
import uvloop
from outrider.loadtest.load.crowd import Crowd, running
from outrider.loadtest.load.one_verifier import Customers, served
from outrider.loadtest.meshes import tenant_mesh
from outrider.loadtest.meshes.site import Site, open_site
from outrider.loadtest.report import bars
from outrider.loadtest.report.bars import Bar
from outrider.wire.tenants import Limits

SLOWDOWN = 1.3
"""Largest ratio of the 95th percentiles: beside a flood, to beside a neighbour that fills its own share."""
DEVIATION = 0.05
"""Largest relative difference of a tenant's service from its share by weight."""
_SLOTS, _QUEUE, _POLITE = 8, 32, 3
_ANSWER, _LONG = 48, 144
"""Tokens of an answer, and of an answer of the flooding tenant."""
_SETTLE_S = 4.0
_WEIGHTS = {"polite": 1.0, "flooding": 1.0, "one": 1.0, "even": 1.0, "three": 3.0}
_BACKLOGGED = (("one", "even"), ("one", "three"))
OVER_VERIFIERS = 0.02
"""Largest relative difference of a tenant's share of the service of all verifiers from its share by weight."""
_HEAVY, _LIGHT = 10.0, 1.0
_PLACES = {
    "spread evenly": ((12, 12), (12, 12)),
    "each mostly at another verifier": ((24, 12), (4, 24)),
    "the light one at one verifier only": ((12, 12), (0, 24)),
}
"""Clients of the heavy and of the light tenant, at the first verifier and at each further one: more than slots."""
_SHAPES = {"heavy": (_HEAVY, 96, 4), "light": (_LIGHT, 24, 6)}
"""Weight, tokens of a prompt, and tokens of an answer: short ones, so that a share is exact after a short time."""


class Latency(msgspec.Struct, frozen=True):
    """Seconds of the polite tenant's answers and of their first tokens, beside a neighbour."""

    beside: str
    whole_s: list[float]
    first_s: list[float]
    failed: int

    @property
    def p95_s(self) -> float:
        """The 95th percentile of whole answers."""
        return percentile(self.whole_s)

    def __str__(self) -> str:
        """One line for the terminal."""
        whole, first = statistics.median(self.whole_s), statistics.median(self.first_s)
        return (
            f"beside {self.beside}: {len(self.whole_s)} answers, {self.failed} failed; whole 50 % {whole:.3f} s, 95 % "
            f"{self.p95_s:.3f} s; first token 50 % {first:.3f} s, 95 % {percentile(self.first_s):.3f} s"
        )


class Service(msgspec.Struct, frozen=True):
    """Tokens generated for two tenants that always had requests waiting."""

    tenants: tuple[str, str]
    tokens: tuple[int, int]

    def deviation(self, weights: tuple[float, float]) -> float:
        """Largest relative difference of a tenant's tokens from its share by weight."""
        pairs = zip(self.tokens, weights, strict=True)
        return max(abs(tokens / sum(self.tokens) / (weight / sum(weights)) - 1) for tokens, weight in pairs)


def percentile(values: list[float], part: float = 0.95) -> float:
    """The value below or at which ``part`` of ``values`` lie; NaN without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else float("nan")


def main() -> int:
    """Measures, prints a line a measurement and the bars, writes JSON; returns 1 if a bar was missed."""
    options = _options()
    if options.verifiers > 1:
        return _publish_shares(options, uvloop.run(_measure_shares(options)))
    latencies, services = uvloop.run(_measure(options))
    judged = judge(latencies, services)
    bars.publish(options.out, judged, options=vars(options), latencies=latencies, services=services)
    return int(not all(bar.met for bar in judged))


def judge(latencies: dict[str, Latency], services: list[Service]) -> list[Bar]:
    """The bars of latencies and services."""
    full, flood = latencies["a full share"], latencies["a flood"]
    judged = [
        Bar("95th percentile beside a full share / beside a flood", full.p95_s / flood.p95_s, 1 / SLOWDOWN),
        Bar("answers of the polite tenant that came, of all", len(flood.whole_s) - flood.failed, len(flood.whole_s)),
    ]
    for service in services:
        weights = _WEIGHTS[service.tenants[0]], _WEIGHTS[service.tenants[1]]
        name = f"service of {service.tenants[0]} and {service.tenants[1]}, {weights[0]:g} to {weights[1]:g}"
        judged.append(Bar(f"{name}: agreement with the weights", 1 - service.deviation(weights), 1 - DEVIATION))
    return judged


def _publish_shares(options: argparse.Namespace, shares: dict[str, float]) -> int:
    due = _LIGHT / (_HEAVY + _LIGHT)
    judged = [
        Bar(f"{place}: agreement with the weights", 1 - abs(share / due - 1), 1 - OVER_VERIFIERS)
        for place, share in shares.items()
    ]
    bars.publish(options.out, judged, options=vars(options), light_shares=shares)
    return int(not all(bar.met for bar in judged))


async def _measure_shares(options: argparse.Namespace) -> dict[str, float]:
    """The light tenant's share of all service, by the places of the clients."""
    async with open_site() as site:
        for number in range(options.verifiers):
            await site.start("verifier", f"verifier-{number}", model="pocket", max_running=_SLOTS, max_waiting=200)
        return {place: await _share(options, site, place) for place in _PLACES}


async def _share(options: argparse.Namespace, site: Site, place: str) -> float:
    heavy, light = (Customers(name, *shape) for name, shape in _SHAPES.items())
    verifiers = site.registry.members("verifier")
    clients = [[each[0], *[each[1]] * (len(verifiers) - 1)] for each in _PLACES[place]]
    async with served(heavy, clients[0], verifiers), served(light, clients[1], verifiers):
        await asyncio.sleep(options.turns * options.seconds / 2)
        heavy.service = light.service = 0
        await asyncio.sleep(options.turns * options.seconds)
        service = heavy.service, light.service
    share = service[1] / sum(service)
    print(f"{place}: service {service[0]} and {service[1]}, {1 - share:.2%} and {share:.2%}", flush=True)
    return share


async def _measure(options: argparse.Namespace) -> tuple[dict[str, Latency], list[Service]]:
    async with open_site(stores=True) as site:
        urls = await tenant_mesh.start(site, ("gateway-1", "gateway-2"), max_running=_SLOTS, max_waiting=_QUEUE)
        keys = await tenant_mesh.store_tenants(
            site.url, {name: Limits(weight=weight) for name, weight in _WEIGHTS.items()}
        )
        crowds = {name: Crowd(name, key, list(urls.values())) for name, key in keys.items()}
        crowds["flooding"].urls = crowds["flooding"].urls[:1]
        latencies = await _latencies(options, crowds["polite"], crowds["flooding"])
        services = [await _service(options, crowds[one], crowds[other]) for one, other in _BACKLOGGED]
    return latencies, services


async def _latencies(options: argparse.Namespace, polite: Crowd, flooding: Crowd) -> dict[str, Latency]:
    beside = {"a full share": _SLOTS - _POLITE, "a flood": options.flood}
    latencies: dict[str, Latency] = {name: Latency(name, [], [], 0) for name in beside}
    turns = [list(beside) if turn % 2 == 0 else list(reversed(beside)) for turn in range(options.turns)]
    for name in itertools.chain(*turns):
        async with running(flooding, beside[name], _LONG), running(polite, _POLITE, _ANSWER):
            await asyncio.sleep(_SETTLE_S)
            polite.reset()
            await asyncio.sleep(options.seconds)
            timed, last = polite.timed, latencies[name]
        whole, first = [answer.whole_s for answer in timed], [answer.first_s for answer in timed]
        latencies[name] = Latency(name, last.whole_s + whole, last.first_s + first, last.failed + polite.failed)
    for latency in latencies.values():
        print(latency, flush=True)
    return latencies


async def _service(options: argparse.Namespace, one: Crowd, other: Crowd) -> Service:
    """Loads both tenants; each has clients for its share of the slots and for half the queue."""
    total = _WEIGHTS[one.name] + _WEIGHTS[other.name]
    clients = [round(_SLOTS * _WEIGHTS[crowd.name] / total) + _QUEUE // 2 for crowd in (one, other)]
    async with running(one, clients[0], _ANSWER), running(other, clients[1], _ANSWER):
        await asyncio.sleep(_SETTLE_S)
        for crowd in (one, other):
            crowd.reset()
        await asyncio.sleep(options.turns * options.seconds)
        service = Service((one.name, other.name), (one.tokens, other.tokens))
    print(f"{one.name} and {other.name}: {service.tokens[0]} and {service.tokens[1]} tokens", flush=True)
    return service


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest fairness", description=__doc__)
    parser.add_argument("--flood", type=int, default=48, help="concurrent requests of the flooding tenant")
    parser.add_argument("--seconds", type=float, default=15.0, help="seconds of each turn")
    parser.add_argument("--turns", type=int, default=4, help="turns of each kind of neighbour")
    parser.add_argument("--verifiers", type=int, default=1, help="from 2 on: shares of tenants over all verifiers")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    if options.flood <= _SLOTS or min(options.turns, options.verifiers) < 1 or options.seconds <= 0:
        parser.error(f"--flood must be above {_SLOTS}, --turns and --verifiers at least 1, --seconds above 0")
    return options


if __name__ == "__main__":
    sys.exit(main())
