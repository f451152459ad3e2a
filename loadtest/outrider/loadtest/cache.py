"""What a KV cache is worth: `python -m outrider.loadtest.cache`.

The time to the first token of the same prompts, by turns: cold, warm in the verifier's own pages, fetched from a KV
cache by shared memory, by gRPC and from its disk, and by a replica that was started after they were computed. Then the
bytes a second that pages move at, beside a copy in memory.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop
from outrider.loadtest import bars
from outrider.loadtest.bars import Bar
from outrider.loadtest.pages import transfer_rates
from outrider.loadtest.site import Site, open_site
from outrider.mesh.registry import Member
from outrider.mesh.rpc import channel, close_channels
from outrider.v1 import sampling_pb2
from outrider.v1 import verifier_pb2 as pb
from outrider.v1.verifier_pb2_grpc import VerifierStub
from outrider.wire.frames import decode_frame
from outrider.wire.ids import pack_ids

COLD, WARM = "cold", "warm"
FETCHED = ("shared memory", "gRPC", "disk", "fresh replica")
_PAGE = 16
_PATIENT = {"kv_cache": "always", "kv_cache_deadline_s": 30, "drafters": "[]"}
Times = dict[str, list[float]]


def main() -> int:
    """Measures, prints the medians and the bars, writes JSON."""
    options = _options()
    times, rates = uvloop.run(_measure(options))
    medians = {mode: statistics.median(found) for mode, found in times.items()}
    for mode, seconds in medians.items():
        print(f"TTFT {mode}: {seconds * 1e3:.1f} ms")
    for transport, rate in rates.items():
        print(f"pages by {transport}: {rate:.2f} GB/s")
    judged = [Bar(f"TTFT cold / {mode}", medians[COLD] / medians[mode], 1) for mode in (WARM, *FETCHED)]
    judged.append(Bar("shared memory / memcpy", rates["shared"] / rates["memcpy"], 0))
    bars.publish(options.out, judged, options=vars(options), ttft_s=times, gigabytes_per_s=rates)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest.cache", description=__doc__)
    parser.add_argument("--model", default="pocket", help="directory of the target, or pocket")
    parser.add_argument("--vocabulary", type=int, default=256, help="prompts are of random ids below this")
    parser.add_argument("--prompt-tokens", type=int, default=768)
    parser.add_argument("--repeats", type=int, default=5, help="prompts")
    parser.add_argument("--page-kib", type=int, default=1024, help="pages of the transfer measurement")
    parser.add_argument("--out", type=Path, help="where the figures go as JSON")
    options = parser.parse_args()
    if min(options.repeats, options.page_kib, options.vocabulary) < 1 or options.prompt_tokens <= _PAGE:
        parser.error(f"numbers must be at least 1, --prompt-tokens above {_PAGE}")
    return options


async def _measure(options: argparse.Namespace) -> tuple[Times, dict[str, float]]:
    dice = random.Random(0)
    prompts = [
        [dice.randrange(options.vocabulary) for _ in range(options.prompt_tokens)] for _ in range(options.repeats)
    ]
    times: Times = {mode: [] for mode in (COLD, WARM, *FETCHED)}
    async with open_site() as memory, open_site() as disk:
        with tempfile.TemporaryDirectory(prefix="outrider-") as directory:
            cache = await memory.start("kvcache", "cache", quotas="memory=1073741824")
            await _start_disk(disk, options, directory)
            members = {
                mode: await memory.start("verifier", mode.replace(" ", "-"), model=options.model, **_PATIENT, **extra)
                for mode, extra in _EXTRA.items()
            }
            warm_up = [dice.randrange(options.vocabulary) for _ in range(options.prompt_tokens)]
            for member in (*members.values(), *disk.registry.members("verifier")):
                await _ttft(member, warm_up[: _PAGE * 4])
            for prompt in prompts:
                await _turn(times, prompt, memory, members, disk)
            fresh = await memory.start("verifier", "fresh", model=options.model, **_PATIENT)
            await asyncio.sleep(1.0)
            for prompt in prompts:
                times["fresh replica"].append(await _ttft(fresh, prompt, hit=True))
            rates = await transfer_rates(cache, options.page_kib << 10, 64, 5)
            await close_channels()
    return times, rates


_EXTRA: dict[str, dict[str, Any]] = {COLD: {}, "shared memory": {}, "gRPC": {"kv_cache_shared": "false"}}


async def _start_disk(site: Site, options: argparse.Namespace, directory: str) -> None:
    await site.start("kvcache", "cache", tiers="disk", options=f'{{"disk": {{"path": "{directory}/pages"}}}}')
    for name in ("writer", "reader"):
        await site.start("verifier", name, model=options.model, **_PATIENT)


async def _turn(times: Times, prompt: list[int], memory: Site, members: dict[str, Member], disk: Site) -> None:
    """One prompt in every mode but the last."""
    await _stored(memory, prompt, times[COLD], members[COLD])
    times[WARM].append(await _ttft(members[COLD], prompt, hit=True))
    for mode in ("shared memory", "gRPC"):
        times[mode].append(await _ttft(members[mode], prompt, hit=True))
    await _stored(disk, prompt, [], disk.member("verifier", "writer"))
    times["disk"].append(await _ttft(disk.member("verifier", "reader"), prompt, hit=True))


async def _stored(site: Site, prompt: list[int], times: list[float], verifier: Member) -> None:
    """Has ``verifier`` compute a new prompt, and returns when its pages are in the cache."""
    before = site.member("kvcache", "cache").status["pages"]
    times.append(await _ttft(verifier, prompt))
    expected = before + (len(prompt) - 1) // _PAGE
    await site.registry.wait_for("kvcache", lambda all_: all_[0].status["pages"] >= expected, 30)


async def _ttft(verifier: Member, prompt: list[int], hit: bool = False) -> float:
    """Seconds to the first token; `SystemExit` where pages should have been found and were not."""
    stub, name = VerifierStub(channel(verifier.address)), f"cache-{time.perf_counter_ns()}"
    sampling = sampling_pb2.SamplingParams(temperature=0.0, seed=1, max_tokens=1)
    began = time.perf_counter()
    await stub.Submit(pb.SubmitRequest(request_id=name, tenant="loadtest", prompt=pack_ids(prompt), sampling=sampling))
    async for response in stub.Follow(pb.FollowRequest(request_id=name)):
        frame = decode_frame(response.frame)
        if frame.tokens:
            seconds = time.perf_counter() - began
        if hit and frame.usage is not None and not frame.usage.cached_tokens:
            raise SystemExit(f"{verifier.instance} found no pages")
    return seconds


if __name__ == "__main__":
    raise SystemExit(main())
