"""The value of a KV cache: `python -m outrider.loadtest cache`.

Measures the time to the first token of the same prompts in turns: cold; warm in the verifier's own pages; fetched from
a KV cache by shared memory, by gRPC over a Unix socket and over TCP, and from its disk; fetched by a replica that
started later; and handed over by a prefill verifier. Then measures the transfer rate of pages beside a copy in memory,
and the effect of a KV cache that comes or goes under load.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from outrider.loadtest.load.cache_churn import CacheChurn, add_and_kill_caches
from outrider.loadtest.load.one_verifier import ask
from outrider.loadtest.meshes.page_transfers import transfer_rates
from outrider.loadtest.meshes.site import Site, open_site
from outrider.loadtest.report import bars
from outrider.loadtest.report.bars import Bar
from outrider.mesh.registry import Member
from outrider.mesh.rpc import close_channels

COLD, WARM, SHARED = "cold", "warm", "shared memory"
MODES = (COLD, WARM, SHARED, "unix socket", "tcp", "disk", "fresh replica", "handed over")
_PAGE = 16
_FETCH_SETTINGS = {"kv_cache": "always", "kv_cache_deadline_s": 30, "handover": "off", "drafters": "[]"}
_HANDOVER_SETTINGS = {"kv_cache": "off", "handover": "always", "handover_deadline_s": 30, "drafters": "[]"}
_MEMORY: dict[str, dict[str, Any]] = {
    COLD: {},
    SHARED: {},
    "unix socket": {"kv_cache_shared": "false"},
    "tcp": {"kv_cache_shared": "false", "sockets": ""},
}
Times = dict[str, list[float]]


class Figures(msgspec.Struct):
    """All figures of the experiment."""

    ttft_s: Times
    gigabytes_per_s: dict[str, float]
    instances: CacheChurn | None = None


def main() -> int:
    """Measures, prints a table and the bars, writes JSON; returns 1 if a request failed or an answer differed."""
    options = _options()
    figures = uvloop.run(_measure(options))
    _print(figures)
    bars.publish(options.out, _judge(figures), options=vars(options), **msgspec.structs.asdict(figures))
    churn = figures.instances
    return int(churn is not None and churn.failed + churn.different > 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest cache", description=__doc__)
    parser.add_argument("--model", default="pocket", help="directory of the target, or pocket")
    parser.add_argument("--vocabulary", type=int, default=256, help="bound of the random ids of prompts")
    parser.add_argument("--prompt-tokens", type=int, default=2047, help="the pocket model's context has 2048")
    parser.add_argument("--repeats", type=int, default=5, help="prompts")
    parser.add_argument("--page-kib", type=int, default=1024, help="pages of the transfer measurement")
    parser.add_argument(
        "--moved", type=int, default=300, help="prompts stored before a third KV cache is added; 0 for none"
    )
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    if min(options.repeats, options.page_kib, options.vocabulary) < 1 or options.prompt_tokens <= _PAGE:
        parser.error(f"numbers must be at least 1, --prompt-tokens above {_PAGE}")
    return options


def _print(figures: Figures) -> None:
    cold = statistics.median(figures.ttft_s[COLD])
    print(f"{'time to the first token':24}{'ms':>8}{'x cold':>8}")
    for mode, times in figures.ttft_s.items():
        print(f"{mode:24}{statistics.median(times) * 1e3:8.1f}{statistics.median(times) / cold:8.2f}")
    for transport, rate in figures.gigabytes_per_s.items():
        print(f"pages by {transport:15}{rate:8.2f} GB/s")
    if churn := figures.instances:
        print(
            f"a third KV cache moved {churn.moved:.0%} of {churn.pages} pages; while it came and another was killed, "
            f"{churn.failed} of {churn.answers} requests failed and {churn.different} answers differed"
        )


def _judge(figures: Figures) -> list[Bar]:
    medians = {mode: statistics.median(times) for mode, times in figures.ttft_s.items()}
    judged = [
        Bar("cold / warm: time to the first token", medians[COLD] / medians[WARM], 10),
        Bar("cold / shared memory: time to the first token", medians[COLD] / medians[SHARED], 1 / 0.3),
    ]
    if churn := figures.instances:
        judged.append(Bar("share of the pages that a third KV cache leaves in place", 1 - churn.moved, 0.6))
        good = churn.answers - churn.failed - churn.different
        judged.append(Bar(f"right answers of {churn.answers} while KV caches came and went", good, churn.answers))
    return judged


async def _measure(options: argparse.Namespace) -> Figures:
    figures = Figures({mode: [] for mode in MODES}, {})
    async with open_site() as memory, open_site() as disk, open_site() as handover:
        with tempfile.TemporaryDirectory(prefix="outrider-") as directory:
            cache = await memory.start("kvcache", "cache", quotas="memory=1073741824")
            for mode, extra in _MEMORY.items():
                await _verifier(memory, mode, options, **_FETCH_SETTINGS, **extra)
            await _start_disk(disk, options, directory)
            for role in ("prefill", "decode"):
                await _verifier(handover, role, options, role=role, **_HANDOVER_SETTINGS)
            await _times(figures.ttft_s, options, memory, disk, handover)
            figures.gigabytes_per_s = await transfer_rates(cache, options.page_kib << 10, 64, 5)
    if options.moved:
        async with open_site() as site:
            figures.instances = await add_and_kill_caches(site, options.moved, model=options.model, **_FETCH_SETTINGS)
    await close_channels()
    return figures


async def _verifier(site: Site, name: str, options: argparse.Namespace, **settings: Any) -> Member:
    return await site.start("verifier", name.replace(" ", "-"), model=options.model, **settings)


async def _start_disk(site: Site, options: argparse.Namespace, directory: str) -> None:
    await site.start("kvcache", "cache", tiers="disk", options=f'{{"disk": {{"path": "{directory}/pages"}}}}')
    for name in ("writer", "reader"):
        await _verifier(site, name, options, **_FETCH_SETTINGS)


async def _times(times: Times, options: argparse.Namespace, memory: Site, disk: Site, handover: Site) -> None:
    draw = random.Random(0)
    prompts = [
        [draw.randrange(options.vocabulary) for _ in range(options.prompt_tokens)] for _ in range(1 + options.repeats)
    ]
    warm_up = prompts.pop()[: _PAGE * 4]
    for site in (memory, disk, handover):
        for member in site.registry.members("verifier"):
            await ask(member, warm_up[: _PAGE * 4])
    for prompt in prompts:
        await _turn(times, prompt, memory, disk, handover)
    fresh = await _verifier(memory, "fresh", options, **_FETCH_SETTINGS)
    await asyncio.sleep(1.0)
    for prompt in prompts:
        times["fresh replica"].append(await _ttft(fresh, prompt))


async def _turn(times: Times, prompt: list[int], memory: Site, disk: Site, handover: Site) -> None:
    """Sends one prompt in every mode except the fresh replica."""
    writer = memory.member("verifier", COLD)
    times[COLD].append(await _ttft_until_stored(memory, prompt, writer))
    times[WARM].append(await _ttft(writer, prompt))
    for mode in list(_MEMORY)[1:]:
        times[mode].append(await _ttft(memory.member("verifier", mode.replace(" ", "-")), prompt))
    await _ttft_until_stored(disk, prompt, disk.member("verifier", "writer"))
    times["disk"].append(await _ttft(disk.member("verifier", "reader"), prompt))
    times["handed over"].append(await _ttft(handover.member("verifier", "decode"), prompt))


async def _ttft_until_stored(site: Site, prompt: list[int], verifier: Member) -> float:
    """Seconds to the first token of a prompt new to ``verifier``; returns when the prompt's pages are stored."""
    before = site.member("kvcache", "cache").status["pages"]
    seconds = (await ask(verifier, prompt)).ttft_s
    expected = before + (len(prompt) - 1) // _PAGE
    await site.registry.wait_for("kvcache", lambda caches: caches[0].status["pages"] >= expected, 30)
    return seconds


async def _ttft(verifier: Member, prompt: list[int]) -> float:
    """Seconds to the first token; `SystemExit` if the verifier found no cached pages."""
    reply = await ask(verifier, prompt)
    if not reply.cached:
        raise SystemExit(f"{verifier.instance} found no pages")
    return reply.ttft_s


if __name__ == "__main__":
    raise SystemExit(main())
