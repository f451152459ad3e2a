"""Prompt tokens that two verifiers compute with each router: `python -m outrider.loadtest routing`.

Conversations run at once, turn by turn; they share their beginning and continue with their own texts. Each verifier
has pages for a part of them (`--room`). Each router has its own mesh and gets the same conversations. The result is the
verifiers' counter of computed prompt tokens; the other figures are measured by clients.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from outrider.loadtest.load.client import Reply, RequestError, complete
from outrider.loadtest.meshes.local_mesh import running
from outrider.loadtest.report.bench_report import machine

ROUTERS = ("round_robin", "least_load", "prefix")
_VOCABULARY = 256
"""Prompts are random ids below this bound."""
_PAGE = 16
_PREFILLED = "outrider_verifier_prefilled_tokens_total"


class ConversationLoad(msgspec.Struct, frozen=True):
    """``conversations`` of ``turns``: the first prompt has ``begin`` tokens after the ``share`` tokens common to all,
    each later prompt ``more`` than the last. ``pause_s`` is the mean time from an answer to the next prompt. ``room``
    is the share of all conversations that a verifier has pages for."""

    share: int
    conversations: int
    turns: int
    begin: int
    more: int
    answer: int
    pause_s: float = 0.0
    room: float = 1.0

    def prompts(self, conversation: int) -> list[list[int]]:
        """The prompts of one conversation, turn by turn."""
        shared = _tokens(self.share, -1)
        tokens = _tokens(self.begin + (self.turns - 1) * self.more, conversation)
        return [shared + tokens[: self.begin + turn * self.more] for turn in range(self.turns)]

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return self.conversations * sum(map(len, self.prompts(0)))

    @property
    def pages(self) -> int:
        """Pages for the shared beginning and the part ``room`` of the conversations."""
        each = self.begin + self.turns * self.more + self.answer
        return int(self.share + each * self.conversations * self.room) // _PAGE


class Outcome(msgspec.Struct, frozen=True):
    """Prompt tokens sent, computed and found in pages with one router, and TTFT in milliseconds."""

    router: str
    computed: int
    asked: int
    found: int
    ttft_p50_ms: float
    ttft_p95_ms: float

    def __str__(self) -> str:
        """One line for the terminal."""
        return (
            f"{self.router}: {self.computed} of {self.asked} prompt tokens computed, "
            f"{self.found / self.asked:.0%} found; TTFT p50 {self.ttft_p50_ms:.0f} ms, p95 {self.ttft_p95_ms:.0f} ms"
        )


class Report(msgspec.Struct, frozen=True):
    """The machine, the load and all outcomes."""

    machine: dict[str, str]
    talk: ConversationLoad
    outcomes: list[Outcome]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the routers one after the other; returns 1 if a request failed."""
    options = _options(arguments)
    load = ConversationLoad(
        options.share,
        options.conversations,
        options.turns,
        options.begin,
        options.more,
        options.answer,
        options.pause,
        options.room,
    )
    outcomes = []
    for router in options.routers:
        try:
            outcomes.append(measure(load, router))
        except RequestError as error:
            print(f"a request failed: {error}", file=sys.stderr)
            return 1
        print(outcomes[-1], flush=True)
    for outcome in outcomes[1:]:
        print(f"{outcomes[0].router} / {outcome.router}: {outcomes[0].computed / outcome.computed:.1f} x the tokens")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        report = msgspec.json.encode(Report(machine(), load, outcomes))
        options.out.write_bytes(msgspec.json.format(report, indent=2) + b"\n")
    return 0


def measure(load: ConversationLoad, router: str) -> Outcome:
    """Runs the conversations on a mesh of two verifiers with ``router``; `RequestError` if a request fails."""
    settings = {"gateway.router": router, "verifier.page_size": str(_PAGE), "verifier.pages": str(load.pages)}
    with running(settings, verifiers=2, proposers=0) as mesh:
        times, replies = zip(*asyncio.run(_converse_all(load, mesh.url)), strict=True)
        computed = int(mesh.metric("verifier", _PREFILLED) or 0)
    cuts = statistics.quantiles(times, n=20, method="inclusive")
    found = sum(reply.cached_tokens for reply in replies)
    return Outcome(router, computed, load.prompt_tokens, found, cuts[9] * 1e3, cuts[18] * 1e3)


async def _converse_all(load: ConversationLoad, url: str) -> list[tuple[float, Reply]]:
    """Seconds to the first token and the reply of every request."""

    async def ask(prompt: list[int]) -> tuple[float, Reply]:
        began = time.perf_counter()
        reply = await complete(url, {"prompt": prompt, "max_tokens": load.answer, "ignore_eos": True})
        return reply.arrivals[0] - began, reply

    async def converse(conversation: int) -> list[tuple[float, Reply]]:
        draw, replies = random.Random(conversation), []
        for prompt in load.prompts(conversation):
            await asyncio.sleep(draw.uniform(0, 2 * load.pause_s))
            replies.append(await ask(prompt))
        return replies

    replies = await asyncio.gather(*map(converse, range(load.conversations)))
    return [request for conversation in replies for request in conversation]


def _tokens(count: int, seed: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(3, _VOCABULARY) for _ in range(count)]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest routing", description=__doc__)
    parser.add_argument("--share", type=int, default=512, help="tokens that all prompts share at their beginning")
    parser.add_argument("--conversations", type=int, default=12)
    parser.add_argument("--turns", type=int, default=16)
    parser.add_argument("--begin", type=int, default=256, help="tokens of a conversation's own in its first prompt")
    parser.add_argument("--more", type=int, default=64, help="tokens by which each turn's prompt is longer")
    parser.add_argument("--answer", type=int, default=16, help="tokens of an answer")
    parser.add_argument("--pause", type=float, default=0.5, help="mean seconds between an answer and the next prompt")
    parser.add_argument(
        "--room", type=float, default=0.5, help="share of all conversations that a verifier has pages for"
    )
    parser.add_argument("--routers", nargs="+", default=list(ROUTERS))
    parser.add_argument("--out", type=Path, default=None, help="JSON file for the figures")
    options = parser.parse_args(arguments)
    for name in ("share", "conversations", "turns", "begin", "more", "answer"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, not {getattr(options, name)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
