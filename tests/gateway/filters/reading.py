"""Feeds a text to a filter."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.gateway.filters.chain import Chain, Setup
from outrider.gateway.filters.filter import MakeFilter, Passed


def chain(*makes: MakeFilter, fail_open: bool = False) -> Chain:
    """Filters of the names ``f0``, ``f1`` and so on."""
    return Chain([Setup(f"f{place}", make, 5.0, fail_open) for place, make in enumerate(makes)])


async def passed_by(chain: Chain, pieces: Sequence[str]) -> Passed:
    """All that a chain lets pass of an answer that comes in ``pieces``."""
    text, changes = "", list[str]()
    for piece in [*filter(None, pieces), None]:
        passed = await (chain.end() if piece is None else chain.feed(piece))
        text += passed.text
        changes += passed.changes
        if passed.ended:
            return Passed(text, tuple(changes), passed.ended)
    return Passed(text, tuple(changes))
