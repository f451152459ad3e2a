"""One turn of chat requests: the same requests in one mode, and what each kind of them came to."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec
import uvloop
from outrider.loadtest.chats.asked import Asked
from outrider.loadtest.load import client
from outrider.loadtest.load.arrivals import Closed
from outrider.loadtest.load.client import Reply
from outrider.loadtest.load.summary import summarize
from outrider.loadtest.load.turns import Case, Turn


class Steps(msgspec.Struct, frozen=True):
    """Tokens of some answers, and the steps of the target that these took."""

    tokens: int = 0
    steps: int = 0

    def __add__(self, other: Steps) -> Steps:
        return Steps(self.tokens + other.tokens, self.steps + other.steps)

    @property
    def a_step(self) -> float:
        """Tokens a step; NaN of nothing."""
        return self.tokens / self.steps if self.steps else float("nan")


class ChatTurn(Turn, frozen=True):
    """One case in one mode, once; ``kinds`` are the steps of each kind of request."""

    kinds: dict[str, Steps]

    def __str__(self) -> str:
        """One line."""
        steps = self.summary.tokens_a_step
        return super().__str__() + ("" if math.isnan(steps) else f", {steps:.2f} tokens a step")


def total(turns: Iterable[ChatTurn]) -> dict[str, Steps]:
    """Steps of each kind over all ``turns``."""
    added: dict[str, Steps] = defaultdict(Steps)
    for turn in turns:
        for kind, steps in turn.kinds.items():
            added[kind] += steps
    return dict(added)


def take(url: str, mode: str, speculation: Any, case: Case, asked: Sequence[Asked], repeat: int) -> ChatTurn:
    """One case in one mode, each request once; prints a line.

    Raises:
        SystemExit: a request failed.
    """
    replies: dict[str, list[Reply]] = defaultdict(list)

    def send(each: Asked) -> Callable[[], Awaitable[Reply]]:
        async def sent() -> Reply:
            reply = await client.complete(url, each.body(speculation), client.CHATS)
            replies[each.kind].append(reply)
            return reply

        return sent

    samples = uvloop.run(Closed(case.concurrency).run(map(send, asked), len(asked)))
    if error := next((sample.error for sample in samples if sample.error), ""):
        raise SystemExit(f"a request failed: {error}")
    kinds = {
        kind: Steps(sum(each.completion_tokens for each in some), sum(each.steps for each in some))
        for kind, some in replies.items()
    }
    turn = ChatTurn(case, mode, repeat, summarize(samples), kinds)
    print(turn, flush=True)
    return turn
