"""Drafters: plug-ins that guess how sequences continue. The plug-in group is `outrider.drafters`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from outrider.engine.models.config import ModelConfig
from outrider.engine.sampling import Sampling
from outrider.engine.speculation.trees.tree import DraftTree
from torch import Tensor


class DrafterError(ValueError):
    """A drafter cannot serve as configured; the message is one sentence for the operator."""


class Target(Protocol):
    """The part of the target that a local drafter may use."""

    config: ModelConfig
    device: torch.device
    dtype: torch.dtype

    def logits(self, hidden: Tensor) -> Tensor:
        """Float32 [n, vocab_size] of rows [n, hidden_size] after the last norm."""
        ...


@dataclass(frozen=True, slots=True)
class DrafterContext:
    """The arguments of a drafter. A plug-in is a callable that takes a context and returns a `Drafter`.

    Attributes:
        vocabulary: fingerprint of the target's vocabulary.
        vocabulary_size: upper bound of token ids.
        context_length: longest sequence of the target, in tokens.
        model: directory of the drafter's own model; None without one.
        device: device of the drafter's model.
        dtype: dtype of the model's weights: auto, float32, bfloat16 or float16.
        options: the operator's settings for this drafter; an unknown one is a `DrafterError`.
        target: the target; None for a drafter in another process.
    """

    vocabulary: str
    vocabulary_size: int
    context_length: int
    model: Path | None = None
    device: str = "cpu"
    dtype: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    target: Target | None = None


@dataclass(frozen=True, slots=True)
class Opening:
    """A sequence to guess at.

    Attributes:
        tokens: prompt and answer so far.
        sampling: the request's sampling parameters; the seed fixes the dice.
        max_nodes: most nodes of a tree.
        tenant: tenant of the request; guesses for one tenant may not depend on another tenant's text.
        prompt: number of ``tokens`` that are the prompt.
        proposes: whether guesses have to be drawn, with proposals in their trees (see
            `outrider.engine.speculation.trees.proposals`); other guesses are then ignored.
        replacement: whether guesses have to be drawn with replacement.
    """

    tokens: Sequence[int]
    sampling: Sampling
    max_nodes: int
    tenant: str = ""
    prompt: int = 0
    proposes: bool = False
    replacement: bool = False


class Drafter(Protocol):
    """Guesses for many sequences at a time, each a session.

    Guesses never change the target's answer, so a drafter may be wrong, late or silent. One thread makes all calls.
    Calls for unknown sessions are ignored.
    """

    name: str
    context_length: int

    def open(self, session: int, opening: Opening) -> None:
        """Starts guessing for a sequence."""
        ...

    def commit(self, session: int, length: int, tokens: Sequence[int]) -> None:
        """Appends decided ``tokens`` after ``length`` tokens of prompt and answer."""
        ...

    def close(self, session: int) -> None:
        """Ends the session."""
        ...

    def draft(self) -> list[tuple[int, DraftTree]]:
        """Does one short piece of work; returns new and improved trees, none when all work is done."""
        ...


@runtime_checkable
class PricedDrafter(Drafter, Protocol):
    """A drafter that steps wait for, and that weighs its work against their time."""

    def price(self, guess: float, second: float) -> None:
        """Sets the prices of later guesses, in tokens.

        Args:
            guess: price of a verified guess: the verifier buys no guess that is less likely.
            second: price of a second that a step waits for the drafter.
        """
        ...


@runtime_checkable
class ReadingDrafter(Drafter, Protocol):
    """A drafter that reads a long prompt in several calls of `draft`; only the last returns trees."""

    @property
    def reading(self) -> bool:
        """Whether `draft` has more to read, although its last call returned nothing."""
        ...


@runtime_checkable
class RestingDrafter(Drafter, Protocol):
    """A drafter that drafts ahead by itself, and can pause for a sequence."""

    def rest(self, session: int) -> None:
        """Pauses drafting for the sequence until its next `commit`, which may come much later."""
        ...


@runtime_checkable
class RememberingDrafter(Drafter, Protocol):
    """A drafter that keeps something of a sequence beyond its end."""

    def forget(self, tenant: str) -> None:
        """Drops the tenant's sessions, and overwrites what was kept of them and of earlier ones."""
        ...

    def expire(self) -> None:
        """Forgets the tenants that had no session since the last call."""
        ...


@runtime_checkable
class HiddenDrafter(Drafter, Protocol):
    """A local drafter that guesses from the target's hidden states."""

    def see(self, session: int, hidden: Tensor) -> None:
        """Takes the target's last hidden state, float32 [hidden_size], of the row that decided the newest token.

        The call follows the `commit` of that token.
        """
        ...
