"""Which of the readers that went on with one request is charged for which of its tokens.

`docs/decisions/0011` says why; nothing here waits or sends: `outrider.gateway.admission.bill_store` does.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

FIRST = "first"
"""Who began the request: the payer until another takes it."""


class Bill(msgspec.Struct, frozen=True):
    """How far a request's answer is accounted for: ``paid`` has, of each choice, the first index that is not.

    ``payer`` is charged for what follows, nobody where it is empty. ``ends`` says up to where those are charged from
    whom the request was taken before they had ended; of one that died, what it had reserved stays counted instead.
    """

    paid: list[int]
    payer: str = FIRST
    ends: dict[str, list[int]] = {}

    def take(self, payer: str, known: Sequence[int]) -> Bill:
        """Has ``payer`` charged from ``paid`` on; so many tokens of each choice are ``known`` to be generated."""
        if not self.payer:
            return Bill(self.paid, payer, self.ends)
        paid = furthest(self.paid, known)
        return Bill(paid, payer, self.ends | {self.payer: paid})

    def end(self, payer: str, start: Sequence[int], heard: Sequence[int]) -> tuple[Bill, int]:
        """The bill without ``payer``, who began at ``start`` and has ``heard`` so many tokens, and what it is charged.

        What it has heard while nobody paid is charged to it too.
        """
        ends = dict(self.ends)
        taken_at = ends.pop(payer, start)
        paid = furthest(self.paid, heard) if self.payer in (payer, "") else self.paid
        charged = sum(taken_at) - sum(start) + sum(paid) - sum(self.paid)
        return Bill(paid, "" if self.payer == payer else self.payer, ends), charged


def furthest(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """The larger of each two indices."""
    return [max(pair) for pair in zip(one, other, strict=True)]
