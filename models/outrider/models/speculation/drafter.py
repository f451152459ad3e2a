"""What a drafter is: anything that guesses how sequences go on. The plug-in group is `outrider.drafters`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from outrider.models.config import ModelConfig
from outrider.models.sampling import Sampling
from outrider.models.speculation.tree import DraftTree
from torch import Tensor


class DrafterError(ValueError):
    """A drafter cannot serve as configured; the message is one sentence for the operator."""


class Target(Protocol):
    """What a drafter that runs beside the target may use of it."""

    config: ModelConfig
    device: torch.device
    dtype: torch.dtype

    def logits(self, hidden: Tensor) -> Tensor:
        """Float32 [n, vocab_size] of rows [n, hidden_size] after the last norm."""
        ...


@dataclass(frozen=True, slots=True)
class DrafterContext:
    """What a drafter is made for. A plug-in is a callable that takes this and returns a `Drafter`.

    Attributes:
        vocabulary: fingerprint of the target's vocabulary.
        vocabulary_size: ids lie below it.
        context_length: longest sequence of the target, in tokens.
        model: directory of the drafter's own model, where it has one.
        device: where a model runs.
        dtype: of a model's weights: auto, float32, bfloat16 or float16.
        options: the operator's settings for this drafter; an unknown one is a `DrafterError`.
        target: the target itself; None where the drafter runs in another process.
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
        tokens: prompt and what has been generated so far.
        sampling: how the target draws; its seed fixes the dice.
        max_nodes: the largest tree that is of use.
        tenant: whose request it is; nothing learnt from one tenant's text may show in another's guesses.
        prompt: how many of ``tokens`` are the prompt.
        proposes: whether guesses have to be drawn, with proposals in their trees (see
            `outrider.models.speculation.proposals`); others are not used then.
        replacement: whether they have to be drawn with replacement.
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

    Nothing a drafter returns changes what the target says, so a drafter may be wrong, late or silent. It is called
    from one thread. Sessions it does not know are ignored.
    """

    name: str
    context_length: int

    def open(self, session: int, opening: Opening) -> None:
        """Starts guessing for a sequence."""
        ...

    def commit(self, session: int, length: int, tokens: Sequence[int]) -> None:
        """The target decided ``tokens``, after ``length`` tokens of prompt and answer."""
        ...

    def close(self, session: int) -> None:
        """The sequence ended."""
        ...

    def draft(self) -> list[tuple[int, DraftTree]]:
        """Does one short piece of work and returns the trees it made or improved; empty when all is done."""
        ...


@runtime_checkable
class PricedDrafter(Drafter, Protocol):
    """A drafter that steps wait for, and that is told what its work costs them."""

    def price(self, guess: float, second: float) -> None:
        """What guesses have to bring from now on so that they pay, in tokens.

        Args:
            guess: of one that is verified: guesses less likely than this are not bought.
            second: of a second in which the drafter has a step wait.
        """
        ...


@runtime_checkable
class ReadingDrafter(Drafter, Protocol):
    """A drafter that takes in long prompts by several calls of `draft`, which return nothing until the last."""

    @property
    def reading(self) -> bool:
        """Whether `draft` has more to take in, although it has just returned nothing."""
        ...


@runtime_checkable
class RestingDrafter(Drafter, Protocol):
    """A drafter that drafts ahead on its own, and can be told that this is of no use for now."""

    def rest(self, session: int) -> None:
        """Nobody takes guesses for the sequence until the next `commit`, which may come much later."""
        ...


@runtime_checkable
class HiddenDrafter(Drafter, Protocol):
    """A drafter that guesses from the target's own hidden states; it runs beside the target."""

    def see(self, session: int, hidden: Tensor) -> None:
        """The target's last hidden state, float32 [hidden_size], at the row that decided the newest token.

        It follows the `commit` of that token.
        """
        ...
