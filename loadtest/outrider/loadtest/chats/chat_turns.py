"""One turn of chat requests in one mode, with the steps of each kind of request."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import uvloop
from outrider.loadtest.load.turns import Case, Turn
from outrider.measure.chats.chat_request import ChatRequest
from outrider.measure.load import client
from outrider.measure.load.arrivals import Closed
from outrider.measure.load.client import Reply
from outrider.measure.load.summary import summarize


class Steps(msgspec.Struct, frozen=True):
    """Tokens of some answers, and the steps of the target that decided them."""

    tokens: int = 0
    steps: int = 0


class ChatTurn(Turn, frozen=True):
    """One case in one mode, once; ``kinds`` holds the steps of each kind of request."""

    kinds: dict[str, Steps]

    def __str__(self) -> str:
        """One line for the terminal."""
        steps = self.summary.tokens_a_step
        return super().__str__() + ("" if math.isnan(steps) else f", {steps:.2f} tokens a step")


def run_turn(
    url: str, mode: str, speculation: Any, case: Case, requests: Sequence[ChatRequest], repeat: int
) -> ChatTurn:
    """Runs one case in one mode, each request once; prints a line.

    Raises:
        SystemExit: a request failed.
    """
    replies: dict[str, list[Reply]] = defaultdict(list)

    def sender(chat: ChatRequest) -> Callable[[], Awaitable[Reply]]:
        async def send() -> Reply:
            reply = await client.complete(url, chat.body(speculation), client.CHATS)
            replies[chat.kind].append(reply)
            return reply

        return send

    samples = uvloop.run(Closed(case.concurrency).run(map(sender, requests), len(requests)))
    if error := next((sample.error for sample in samples if sample.error), ""):
        raise SystemExit(f"a request failed: {error}")
    kinds = {
        kind: Steps(sum(reply.completion_tokens for reply in kind_replies), sum(reply.steps for reply in kind_replies))
        for kind, kind_replies in replies.items()
    }
    turn = ChatTurn(case, mode, repeat, summarize(samples), kinds)
    print(turn, flush=True)
    return turn
