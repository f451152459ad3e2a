"""What one reader of a request has reserved of its caller's limits, and is charged in the end."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from outrider.gateway.admission.bill import furthest
from outrider.gateway.admission.bill_store import Bills
from outrider.gateway.admission.reservation import Admission
from outrider.mesh.errors import Unavailable
from outrider.mesh.telemetry import get_logger

_log = get_logger("charges")


class Charge:
    """The tokens of a request's answer from where this reader's share begins, and a place for each choice under way.

    The ``bills`` are asked where the request, called ``name``, is one that others may go on with, and has limits: then
    it is ``shared``.
    """

    def __init__(self, admission: Admission, bills: Bills, name: str, payer: str, *, shared: bool) -> None:
        self._admission, self._bills, self._name, self._payer = admission, bills, name, payer
        self.shared = shared and admission.metered
        self._prompt = 0
        self._start: list[int] | None = None

    async def begin(self, prompt: int, answers: Sequence[int]) -> None:
        """Reserves for a new request, as `Admission.reserve`."""
        await self._admission.reserve(prompt, answers)
        self._prompt, self._start = prompt, [0] * len(answers)

    async def take(self, known: list[int]) -> None:
        """Is charged from now on for a request of which so many tokens of each choice are ``known``."""
        self._start = await self._bills.take(self._name, self._payer, known) if self.shared else known

    async def reserve(self, most: Sequence[int], running: int) -> None:
        """Reserves what is left of ``most`` tokens of each choice, and a place for each that is ``running``."""
        await self._admission.reserve_rest(_beyond(self._start or most, most), running)

    def waive(self) -> None:
        """Charges nothing: no verifier has taken the request, or none has come to it in time."""
        if self._start is not None:
            self._admission.settle(0)
            self._start = None

    async def settle(self, heard: Sequence[int]) -> None:
        """Ends it, with so many tokens of each choice; what was reserved beyond comes back."""
        start, self._start = self._start, None
        if start is None:
            return
        try:
            charged = await self._share(start, list(heard))
        except Unavailable as error:
            _log.warning("others are not told how far a stream is paid", request=self._name, why=error.message)
            charged = _beyond(start, heard)
        self._admission.settle(self._prompt + charged)

    async def _share(self, start: list[int], heard: list[int]) -> int:
        if not self.shared:
            return _beyond(start, heard)
        return await self._bills.end(self._name, self._payer, start, heard)


def new_payer() -> str:
    """A name for one who goes on with a request."""
    return secrets.token_hex(6)


def _beyond(start: Sequence[int], heard: Sequence[int]) -> int:
    return sum(furthest(start, heard)) - sum(start)
