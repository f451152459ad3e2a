"""The units of a caller's limits that one reader of a request reserves, and the tokens that it is charged for."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from outrider.gateway.admission.bill import BillStore, furthest
from outrider.gateway.admission.reservation import Admission
from outrider.mesh.errors import Unavailable
from outrider.mesh.telemetry import get_logger

_log = get_logger("charges")


class Charge:
    """One reader's share of a request's tokens, and a slot for each choice that runs.

    Attributes:
        admission: The admission of the request.
        shared: Whether the bill called ``name`` in ``bills`` divides the tokens between this reader and others: other
            readers may go on with the request, and its caller has limits on tokens.
    """

    def __init__(self, admission: Admission, bills: BillStore, name: str, payer: str, *, shared: bool) -> None:
        self.admission, self._bills, self._name, self._payer = admission, bills, name, payer
        self.shared = shared and admission.metered
        self._prompt = 0
        self._start: list[int] | None = None

    async def begin(self, prompt: int, answers: Sequence[int]) -> None:
        """Reserves ``prompt`` tokens and the most tokens of each of ``answers``; raises as `Admission.reserve`."""
        await self.admission.reserve(prompt, answers)
        self._prompt, self._start = prompt, [0] * len(answers)

    async def take(self, generated: list[int]) -> None:
        """Begins this reader's share of an earlier request, with ``generated`` tokens of each choice so far."""
        self._start = await self._bills.take(self._name, self._payer, generated) if self.shared else generated

    async def reserve(self, most: Sequence[int], running: int) -> None:
        """Reserves what is left of ``most`` tokens of each choice, and ``running`` slots; raises `LimitReached`."""
        await self.admission.reserve_rest(_tokens_beyond(self._start or most, most), running)

    def waive(self) -> None:
        """Charges nothing: no verifier took the request, or none computed anything before its deadline."""
        if self._start is not None:
            self.admission.settle(0)
            self._start = None

    async def settle(self, received: Sequence[int]) -> tuple[int, int]:
        """Charges this reader's share of ``received`` tokens of each choice, and releases the other reserved tokens.

        Returns the tokens of prompts and of answers that are charged; none if they are charged already, or waived.
        """
        start, self._start = self._start, None
        if start is None:
            return 0, 0
        try:
            charged = await self._share(start, list(received))
        except Unavailable as error:
            _log.warning("a bill could not be written", request=self._name, why=error.message)
            charged = _tokens_beyond(start, received)
        self.admission.settle(self._prompt + charged)
        return self._prompt, charged

    async def _share(self, start: list[int], received: list[int]) -> int:
        if not self.shared:
            return _tokens_beyond(start, received)
        return await self._bills.end(self._name, self._payer, start, received)


def new_payer() -> str:
    """A random name for a reader that takes a request over."""
    return secrets.token_hex(6)


def _tokens_beyond(start: Sequence[int], received: Sequence[int]) -> int:
    return sum(furthest(start, received)) - sum(start)
