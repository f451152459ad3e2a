"""``truncation``: drops the oldest messages of a conversation that does not fit the context."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from outrider.gateway.api.responses.items import Message, leading

Fits = Callable[[list[Message]], Awaitable[bool]]


async def truncated(conversation: list[Message], fits: Fits) -> list[Message]:
    """The longest end of ``conversation`` that ``fits``, behind the leading messages of the system, which are kept.

    The last message is kept, too. A result of a call is not kept without the call, and where a message of the user
    follows, the rest begins with that: many templates take no other.
    """
    lead = leading(conversation)
    starts = [place for place in range(lead, len(conversation)) if conversation[place]["role"] != "tool"]
    least, most = 0, len(starts) - 1
    if most < 1 or await fits(conversation):
        return conversation
    while least < most:
        middle = (least + most) // 2
        if await fits(conversation[:lead] + conversation[starts[middle] :]):
            most = middle
        else:
            least = middle + 1
    begins = next((place for place in starts[least:] if conversation[place]["role"] == "user"), starts[least])
    return conversation[:lead] + conversation[begins:]
