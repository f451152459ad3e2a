"""The drafter of three layers, which keeps what it got, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from outrider.engine.speculation import DrafterContext, Opening
from outrider_three_layers import ThreeLayers
from torch import Tensor


class Recorder(ThreeLayers):
    """Writes tokens and states of each session to a file of the option ``folder`` when it ends."""

    name = "recorder"

    def __init__(self, context: DrafterContext) -> None:
        super().__init__(context)
        self.traits = replace(self.traits, travels=not context.options.get("stays", False))
        self._folder = Path(context.options["folder"])
        self._tokens: dict[int, list[int]] = {}
        self._seen: dict[int, list[tuple[int, Tensor]]] = {}

    def open(self, session: int, opening: Opening) -> None:
        super().open(session, opening)
        self._tokens[session], self._seen[session] = list(opening.tokens), []

    def commit(self, session: int, length: int, tokens: Sequence[int]) -> None:
        super().commit(session, length, tokens)
        assert length == len(self._tokens[session])
        self._tokens[session] += tokens

    def see(self, session: int, start: int, states: Tensor) -> None:
        super().see(session, start, states)
        self._seen[session].append((start, states.clone()))

    def close(self, session: int) -> None:
        super().close(session)
        place = self._folder / f"{session}.new"
        torch.save((self._tokens.pop(session), self._seen.pop(session)), place)
        place.rename(place.with_suffix(".pt"))
