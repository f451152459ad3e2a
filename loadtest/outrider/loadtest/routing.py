"""Prompt tokens that two verifiers compute with each router: `python -m outrider.loadtest.routing`.

Conversations that begin with texts of their own and grow turn by turn, all at once. Each router has a mesh of its own
and gets the same conversations. What counts is the verifiers' own counter of prompt tokens computed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx
import msgspec
from outrider.loadtest.local_mesh import running
from outrider.loadtest.report import machine

ROUTERS = ("least_load", "prefix", "cost")
_VOCABULARY = 256
"""Prompts are ids below it."""
_PREFILLED = "outrider_verifier_prefilled_tokens_total"


class Talk(msgspec.Struct, frozen=True):
    """``conversations`` of ``turns``: the first prompt has ``begin`` tokens, each later one ``more`` than the last."""

    conversations: int
    turns: int
    begin: int
    more: int
    answer: int

    def prompts(self, conversation: int) -> list[list[int]]:
        """The prompts of one conversation, turn by turn."""
        dice = random.Random(conversation)
        tokens = [dice.randrange(3, _VOCABULARY) for _ in range(self.begin + (self.turns - 1) * self.more)]
        return [tokens[: self.begin + turn * self.more] for turn in range(self.turns)]

    @property
    def asked(self) -> int:
        """Tokens of all prompts."""
        return self.conversations * sum(self.begin + turn * self.more for turn in range(self.turns))


class Outcome(msgspec.Struct, frozen=True):
    """What the verifiers computed of the prompts with one router."""

    router: str
    computed: int
    asked: int

    def __str__(self) -> str:
        """One line."""
        return (
            f"{self.router}: {self.computed} of {self.asked} prompt tokens computed, {self.computed / self.asked:.0%}"
        )


class Report(msgspec.Struct, frozen=True):
    """All outcomes."""

    machine: dict[str, str]
    talk: Talk
    outcomes: list[Outcome]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the routers one after the other; 1 if a request failed."""
    options = _options(arguments)
    talk = Talk(options.conversations, options.turns, options.begin, options.more, options.answer)
    outcomes = []
    for router in options.routers:
        try:
            outcomes.append(measure(talk, router))
        except httpx.HTTPError as error:
            print(f"a request failed: {error}", file=sys.stderr)
            return 1
        print(outcomes[-1], flush=True)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        report = msgspec.json.encode(Report(machine(), talk, outcomes))
        options.out.write_bytes(msgspec.json.format(report, indent=2) + b"\n")
    return 0


def measure(talk: Talk, router: str) -> Outcome:
    """A mesh of two verifiers with ``router``, and the conversations on it; `httpx.HTTPError` if a request fails."""
    with running({"gateway.router": router}, verifiers=2, proposers=0) as mesh:
        asyncio.run(_talk(talk, mesh.url))
        return Outcome(router, int(mesh.metric("verifier", _PREFILLED) or 0), talk.asked)


async def _talk(talk: Talk, url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=600, trust_env=False) as client:

        async def converse(conversation: int) -> None:
            for prompt in talk.prompts(conversation):
                body = {"prompt": prompt, "max_tokens": talk.answer, "ignore_eos": True}
                (await client.post("/v1/completions", json=body)).raise_for_status()

        await asyncio.gather(*map(converse, range(talk.conversations)))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest.routing", description=__doc__)
    parser.add_argument("--conversations", type=int, default=8)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--begin", type=int, default=512, help="tokens of a conversation's first prompt")
    parser.add_argument("--more", type=int, default=64, help="tokens by which each turn's prompt is longer")
    parser.add_argument("--answer", type=int, default=16, help="tokens of an answer")
    parser.add_argument("--routers", nargs="+", default=list(ROUTERS))
    parser.add_argument("--out", type=Path, default=None, help="JSON file for the figures")
    options = parser.parse_args(arguments)
    for name in ("conversations", "turns", "begin", "more", "answer"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, not {getattr(options, name)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
