"""Whether gateways hold one limit together under skewed load: `python -m outrider.loadtest limits`.

Three gateways share two tenants: one has so many requests a minute, one so many tokens. Each asks for twice its limit,
most of it through one gateway, for some whole minutes of UTC, which are what limits are by; then once more while the
gateway with most of the load is killed in the middle, and its clients turn to the others. Every minute has its limit
anew: no burst goes before it, and nothing of it is carried over. Exit code 1: over the limit, or too far below it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from pathlib import Path
from typing import Any

import httpx
from outrider.loadtest.meshes import tenanted
from outrider.loadtest.meshes.site import Site, open_site
from outrider.loadtest.report import bars
from outrider.loadtest.report.bars import Bar
from outrider.loadtest.report.windows import MINUTE_S, Asked, Fate, Window, judge, tally, window_of
from outrider.wire.tenants import Limits
from rich.console import Console
from rich.table import Table

LEAST = 0.99
"""Share of a limit that is to be let in."""
_SKEW = {"gateway-1": 0.80, "gateway-2": 0.15, "gateway-3": 0.05}
_PROMPT, _ANSWER = 180, (8, 32)
"""Tokens of prompts, and the least and most of answers, of the tenant that is bound by tokens."""
_KILL_AFTER_S = 15.0
_EARLY_S = 1.0
"""So long before the end of the last minute the load stops."""


class Tenant:
    """A tenant with one limit, and what became of its requests."""

    def __init__(self, kind: str, limit: int, key: str, urls: dict[str, str]) -> None:
        self.kind, self.limit, self.asked = kind, limit, list[Asked]()
        self._urls, self._dice = dict(urls), random.Random(kind)
        self._http = httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=60, trust_env=False)

    async def run(self, load: float, until: float) -> None:
        """Asks for ``load`` times the limit, at random times, until `time.time` is ``until``."""
        each = 1 if self.kind == "requests" else _PROMPT + sum(_ANSWER) / 2
        rate, due = load * self.limit / MINUTE_S / each, time.time()
        tasks = []
        while (due := due + self._dice.expovariate(rate)) < until:
            await asyncio.sleep(due - time.time())
            tasks.append(asyncio.create_task(self._ask()))
        await asyncio.gather(*tasks)

    async def close(self) -> None:
        """Lets go of the connections."""
        await self._http.aclose()

    async def _ask(self) -> None:
        """Asks once, of another gateway where the first cannot be reached."""
        names = list(self._urls)
        gateway = self._dice.choices(names, [_SKEW[name] for name in names])[0]
        body, sent = self._body(), time.time()
        try:
            answer = await self._http.post(f"{self._urls[gateway]}/v1/completions", json=body)
        except httpx.ConnectError:
            self._urls.pop(gateway, None)
            return await self._ask()
        except httpx.TransportError:
            self._urls.pop(gateway, None)
            return self._note(gateway, Fate.LOST, int(sent // MINUTE_S), len(body["prompt"]) + body["max_tokens"])
        if answer.status_code not in (200, 429):
            raise SystemExit(f"a request failed: {answer.text}")
        window = window_of(sent, answer.headers[f"x-ratelimit-reset-{self.kind}"])
        if answer.is_success:
            self._note(gateway, Fate.ADMITTED, window, answer.json()["usage"]["total_tokens"])
        else:
            self._note(gateway, Fate.REFUSED, window, 0)

    def _note(self, gateway: str, fate: Fate, window: int, tokens: int) -> None:
        self.asked.append(Asked(gateway, fate, window, min(tokens, 1) if self.kind == "requests" else tokens))

    def _body(self) -> dict[str, Any]:
        """Every other answer ends by itself, before it has all that is reserved for it."""
        if self.kind == "requests":
            return {"prompt": [65], "max_tokens": 1}
        stop = {"ignore_eos": True} if self._dice.random() < 0.5 else {"stop": [" ", "e"]}
        return {"prompt": [65] * _PROMPT, "max_tokens": self._dice.randint(*_ANSWER)} | stop


def main() -> int:
    """Loads the gateways, prints a table of minutes and the bars, writes JSON; 1 if a limit was not held."""
    options = _options()
    found = asyncio.run(_measure(options))
    _print(found)
    limits = {"requests": options.requests, "tokens": options.tokens}
    judged: list[Bar] = []
    for name, windows in found.items():
        judged += judge(name, windows, limits[name.partition(",")[0]], options.minutes, LEAST)
    bars.publish(options.out, judged, options=vars(options), skew=_SKEW, windows=found)
    return int(not all(bar.met for bar in judged))


async def _measure(options: argparse.Namespace) -> dict[str, list[Window]]:
    limits = {
        "requests": Limits(requests_per_minute=options.requests),
        "tokens": Limits(tokens_per_minute=options.tokens),
    }
    async with open_site(stores=True) as site:
        urls = await tenanted.start(site, list(_SKEW), drafters='["ngram"]')
        keys = await tenanted.put_on(site.url, limits)
        found: dict[str, list[Window]] = {}
        for doomed in (None, next(iter(_SKEW))):
            tenants = [Tenant(kind, getattr(options, kind), keys[kind], urls) for kind in limits]
            await _load(site, tenants, options, doomed)
            for tenant in tenants:
                name = f"{tenant.kind}, {doomed} killed" if doomed else tenant.kind
                found[name] = tally(tenant.asked)
    return found


async def _load(site: Site, tenants: list[Tenant], options: argparse.Namespace, doomed: str | None) -> None:
    begin = (time.time() // MINUTE_S + 1) * MINUTE_S
    await asyncio.sleep(begin - time.time())
    runs = [tenant.run(options.load, begin + options.minutes * MINUTE_S - _EARLY_S) for tenant in tenants]
    loading = asyncio.gather(*runs)
    if doomed is not None:
        await asyncio.sleep(options.minutes // 2 * MINUTE_S + _KILL_AFTER_S)
        await asyncio.to_thread(site.kill, doomed)
    await loading
    for tenant in tenants:
        await tenant.close()


def _print(found: dict[str, list[Window]]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in ("bound by", "minute", "let in", "lost", "refused", *_SKEW):
        table.add_column(head, justify="left" if head == "bound by" else "right")
    for name, windows in found.items():
        for number, each in enumerate(windows, 1):
            shares = [each.by_gateway.get(gateway, 0) for gateway in _SKEW]
            table.add_row(name, *map(str, (number, each.admitted, each.lost, each.refused, *shares)))
    Console().print(table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest limits", description=__doc__)
    parser.add_argument("--requests", type=int, default=600, help="a minute, of one tenant")
    parser.add_argument("--tokens", type=int, default=60_000, help="a minute, of the other")
    parser.add_argument("--load", type=float, default=2.0, help="times the limit that is asked for")
    parser.add_argument("--minutes", type=int, default=3, help="of each kind of load")
    parser.add_argument("--out", type=Path, help="where the figures go as JSON")
    options = parser.parse_args()
    if min(options.requests, options.minutes) < 1 or options.tokens < _PROMPT + _ANSWER[1] or options.load <= 0:
        parser.error(f"numbers must be at least 1, --tokens at least {_PROMPT + _ANSWER[1]}, --load above 0")
    return options


if __name__ == "__main__":
    sys.exit(main())
