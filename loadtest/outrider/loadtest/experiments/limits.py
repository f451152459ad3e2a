"""Checks that gateways hold a limit together under skewed load: `python -m outrider.loadtest limits`.

Three gateways share two tenants: one is limited by requests a minute, one by tokens. Each tenant sends twice its limit,
most of it through one gateway, for some whole minutes of UTC, the windows of limits. A second run kills the gateway
with most of the load in the middle, and its clients go to the others. Every minute has a new limit, without bursts and
without carry-over. Exit code 1: a minute was over the limit, or the total was too far below it.
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
from outrider.loadtest.meshes import tenant_mesh
from outrider.loadtest.meshes.site import Site, open_site
from outrider.loadtest.report import bars
from outrider.loadtest.report.bars import Bar
from outrider.loadtest.report.windows import MINUTE_S, CountedRequest, RequestOutcome, Window, judge, tally, window_of
from outrider.wire.tenants import Limits
from rich.console import Console
from rich.table import Table

LEAST = 0.99
"""Least share of a limit that gateways have to admit."""
_SKEW = {"gateway-1": 0.80, "gateway-2": 0.15, "gateway-3": 0.05}
_PROMPT, _ANSWER = 180, (8, 32)
"""Tokens of prompts, and fewest and most of answers, of the tenant limited by tokens."""
_KILL_AFTER_S = 15.0
_EARLY_S = 1.0
"""Seconds before the end of the last minute when the load stops."""


class Tenant:
    """A tenant with one limit, and the fates of its requests."""

    def __init__(self, kind: str, limit: int, key: str, urls: dict[str, str]) -> None:
        self.kind, self.limit, self.requests = kind, limit, list[CountedRequest]()
        self._urls, self._draw = dict(urls), random.Random(kind)
        self._http = httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=60, trust_env=False)

    async def run(self, load: float, until: float) -> None:
        """Sends ``load`` times the limit at random times, until `time.time` is ``until``."""
        units = 1 if self.kind == "requests" else _PROMPT + sum(_ANSWER) / 2
        rate, due = load * self.limit / MINUTE_S / units, time.time()
        tasks = []
        while (due := due + self._draw.expovariate(rate)) < until:
            await asyncio.sleep(due - time.time())
            tasks.append(asyncio.create_task(self._ask()))
        await asyncio.gather(*tasks)

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def _ask(self) -> None:
        """Sends one request, to another gateway if the first cannot be reached."""
        names = list(self._urls)
        gateway = self._draw.choices(names, [_SKEW[name] for name in names])[0]
        body, sent = self._body(), time.time()
        try:
            response = await self._http.post(f"{self._urls[gateway]}/v1/completions", json=body)
        except httpx.ConnectError:
            self._urls.pop(gateway, None)
            return await self._ask()
        except httpx.TransportError:
            self._urls.pop(gateway, None)
            return self._note(
                gateway, RequestOutcome.LOST, int(sent // MINUTE_S), len(body["prompt"]) + body["max_tokens"]
            )
        if response.status_code not in (200, 429):
            raise SystemExit(f"a request failed: {response.text}")
        window = window_of(sent, response.headers[f"x-ratelimit-reset-{self.kind}"])
        if response.is_success:
            self._note(gateway, RequestOutcome.ADMITTED, window, response.json()["usage"]["total_tokens"])
        else:
            self._note(gateway, RequestOutcome.REFUSED, window, 0)

    def _note(self, gateway: str, outcome: RequestOutcome, window: int, tokens: int) -> None:
        self.requests.append(
            CountedRequest(gateway, outcome, window, min(tokens, 1) if self.kind == "requests" else tokens)
        )

    def _body(self) -> dict[str, Any]:
        """A request; about half of the answers end before they use all their reserved tokens."""
        if self.kind == "requests":
            return {"prompt": [65], "max_tokens": 1}
        stop = {"ignore_eos": True} if self._draw.random() < 0.5 else {"stop": [" ", "e"]}
        return {"prompt": [65] * _PROMPT, "max_tokens": self._draw.randint(*_ANSWER)} | stop


def main() -> int:
    """Loads the gateways, prints a table of minutes and the bars, writes JSON; returns 1 if a limit was not held."""
    options = _options()
    windows_by_run = asyncio.run(_measure(options))
    _print(windows_by_run)
    limits = {"requests": options.requests, "tokens": options.tokens}
    judged: list[Bar] = []
    for name, windows in windows_by_run.items():
        judged += judge(name, windows, limits[name.partition(",")[0]], options.minutes, LEAST)
    bars.publish(options.out, judged, options=vars(options), skew=_SKEW, windows=windows_by_run)
    return int(not all(bar.met for bar in judged))


async def _measure(options: argparse.Namespace) -> dict[str, list[Window]]:
    limits = {
        "requests": Limits(requests_per_minute=options.requests),
        "tokens": Limits(tokens_per_minute=options.tokens),
    }
    async with open_site(stores=True) as site:
        urls = await tenant_mesh.start(site, list(_SKEW), drafters='["ngram"]')
        keys = await tenant_mesh.store_tenants(site.url, limits)
        windows_by_run: dict[str, list[Window]] = {}
        for killed_gateway in (None, next(iter(_SKEW))):
            tenants = [Tenant(kind, getattr(options, kind), keys[kind], urls) for kind in limits]
            await _load(site, tenants, options, killed_gateway)
            for tenant in tenants:
                name = f"{tenant.kind}, {killed_gateway} killed" if killed_gateway else tenant.kind
                windows_by_run[name] = tally(tenant.requests)
    return windows_by_run


async def _load(site: Site, tenants: list[Tenant], options: argparse.Namespace, killed_gateway: str | None) -> None:
    begin = (time.time() // MINUTE_S + 1) * MINUTE_S
    await asyncio.sleep(begin - time.time())
    runs = [tenant.run(options.load, begin + options.minutes * MINUTE_S - _EARLY_S) for tenant in tenants]
    loading = asyncio.gather(*runs)
    if killed_gateway is not None:
        await asyncio.sleep(options.minutes // 2 * MINUTE_S + _KILL_AFTER_S)
        await asyncio.to_thread(site.kill, killed_gateway)
    await loading
    for tenant in tenants:
        await tenant.close()


def _print(windows_by_run: dict[str, list[Window]]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in ("bound by", "minute", "let in", "lost", "refused", *_SKEW):
        table.add_column(head, justify="left" if head == "bound by" else "right")
    for name, windows in windows_by_run.items():
        for number, window in enumerate(windows, 1):
            shares = [window.by_gateway.get(gateway, 0) for gateway in _SKEW]
            table.add_row(name, *map(str, (number, window.admitted, window.lost, window.refused, *shares)))
    Console().print(table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest limits", description=__doc__)
    parser.add_argument("--requests", type=int, default=600, help="a minute, of one tenant")
    parser.add_argument("--tokens", type=int, default=60_000, help="a minute, of the other")
    parser.add_argument("--load", type=float, default=2.0, help="load as a multiple of the limit")
    parser.add_argument("--minutes", type=int, default=3, help="minutes of each run")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    if min(options.requests, options.minutes) < 1 or options.tokens < _PROMPT + _ANSWER[1] or options.load <= 0:
        parser.error(f"numbers must be at least 1, --tokens at least {_PROMPT + _ANSWER[1]}, --load above 0")
    return options


if __name__ == "__main__":
    sys.exit(main())
