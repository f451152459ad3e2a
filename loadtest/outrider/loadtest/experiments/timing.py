"""Whether a tenant can tell from times to first tokens what another asked: `python -m outrider.loadtest timing`.

One tenant sends prompts, whose pages the verifier then keeps. Another tenant sends the same prompts and as many new
ones of the same length, in random order, each once: the times of the two kinds must not differ. The control is the
first tenant itself, which then does the same: its own prompts must come sooner than new ones. Otherwise the pages were
gone, or the probe is blind. All this is done with a few prompts at a time. Exit code 1: a bar was missed. One run in
twenty misses the first by chance.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import statistics
import sys
import time
from pathlib import Path

import httpx
import msgspec
import uvloop
from outrider.loadtest.meshes import tenant_mesh
from outrider.loadtest.meshes.site import open_site
from outrider.loadtest.report import bars
from outrider.loadtest.report.bars import Bar
from outrider.loadtest.report.mann_whitney import p_value
from outrider.wire.tenants import Limits

UNTOLD = 0.05
"""Least p value of another tenant's prompts: below, they differ from new ones."""
TOLD = 3.0
"""Digits after the point of the largest p value of a tenant's own prompts."""
_OWNER, _STRANGER = "owner", "stranger"
_AT_A_TIME = 25
_IDS = 300, 4000
"""Token ids of prompts: ordinary ones of every vocabulary."""


class Probes(msgspec.Struct):
    """Seconds to the first token of prompts that the owner has sent and of new ones; tokens found in the cache."""

    by: str
    known_s: list[float] = []
    new_s: list[float] = []
    cached: int = 0

    @property
    def p(self) -> float:
        """How often the times of one kind of prompt would differ as much by chance."""
        return p_value(self.known_s, self.new_s)

    def __str__(self) -> str:
        """One line for the terminal."""
        known, new = statistics.median(self.known_s), statistics.median(self.new_s)
        return (
            f"{self.by}: {len(self.known_s)} known prompts {known * 1e3:.2f} ms, {len(self.new_s)} new ones "
            f"{new * 1e3:.2f} ms (medians), p = {self.p:.2g}, {self.cached} tokens from the cache"
        )


class Tenant:
    """Sends prompts with a key."""

    def __init__(self, name: str, url: str, key: str) -> None:
        self.name, headers = name, {"authorization": f"Bearer {key}"}
        self._http = httpx.AsyncClient(base_url=url, headers=headers, timeout=120, trust_env=False)

    async def ask(self, prompt: list[int]) -> tuple[float, int]:
        """Seconds to the first and only token, and tokens of the prompt that were not computed again."""
        began = time.perf_counter()
        answer = await self._http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1, "temperature": 0})
        seconds = time.perf_counter() - began
        answer.raise_for_status()
        return seconds, answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

    async def probe(self, known: list[list[int]], new: list[list[int]], draw: random.Random, probes: Probes) -> None:
        """Sends each prompt once, in random order, and notes the times in ``probes``."""
        mixed = [(prompt, True) for prompt in known] + [(prompt, False) for prompt in new]
        for prompt, is_known in draw.sample(mixed, len(mixed)):
            seconds, cached = await self.ask(prompt)
            (probes.known_s if is_known else probes.new_s).append(seconds)
            probes.cached += cached

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()


def main() -> int:
    """Measures, prints a line for each tenant and the bars, writes JSON; returns 1 if a bar was missed."""
    options = _options()
    stranger, owner = uvloop.run(_measure(options))
    judged = judge(stranger, owner)
    bars.publish(options.out, judged, options=vars(options), stranger=stranger, owner=owner)
    return int(not all(bar.met for bar in judged))


def judge(stranger: Probes, owner: Probes) -> list[Bar]:
    """The bars of both tenants' probes."""
    return [
        Bar("p value of another tenant's prompts beside new ones", stranger.p, UNTOLD),
        Bar("tokens that the stranger had from the cache, times -1", -stranger.cached, 0),
        Bar("-log10 of the p value of the owner's prompts beside new ones", -math.log10(max(owner.p, 1e-300)), TOLD),
    ]


async def _measure(options: argparse.Namespace) -> tuple[Probes, Probes]:
    draw = random.Random(options.seed)
    told = Probes(_STRANGER, [], []), Probes(_OWNER, [], [])
    async with open_site(stores=True) as site:
        model = {"model": options.model} if options.model else {}
        urls = await tenant_mesh.start(site, ["gateway-1"], **model)
        keys = await tenant_mesh.store_tenants(site.url, {_OWNER: Limits(), _STRANGER: Limits()})
        owner, stranger = (Tenant(name, urls["gateway-1"], keys[name]) for name in (_OWNER, _STRANGER))
        for tenant in (owner, stranger):  # whatever is slow at first is over
            await asyncio.gather(*(tenant.ask(_prompt(draw, options.tokens)) for _ in range(20)))
        for _ in range(-(-options.prompts // _AT_A_TIME)):
            known, new, unseen = ([_prompt(draw, options.tokens) for _ in range(_AT_A_TIME)] for _ in range(3))
            for prompt in known:
                await owner.ask(prompt)
            await stranger.probe(known, new, draw, told[0])
            await owner.probe(known, unseen, draw, told[1])
        for tenant in (owner, stranger):
            await tenant.close()
    print(*told, sep="\n", flush=True)
    return told


def _prompt(draw: random.Random, tokens: int) -> list[int]:
    return [draw.randrange(*_IDS) for _ in range(tokens)]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest timing", description=__doc__)
    parser.add_argument("--model", type=Path, metavar="DIR", help="a Hugging Face directory; else the shipped target")
    parser.add_argument("--prompts", type=int, default=500, help="prompts of each kind")
    parser.add_argument("--tokens", type=int, default=256, help="tokens of a prompt")
    parser.add_argument("--seed", type=int, default=1, help="of the prompts and of their order")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    if options.prompts < 20 or options.tokens < 1:
        parser.error("--prompts must be at least 20, --tokens at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main())
