"""What a drafter is: anything that guesses how sequences go on. The plug-in group is `outrider.drafters`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from outrider.models.sampling import Sampling
from outrider.models.speculation.tree import DraftTree


class DrafterError(ValueError):
    """A drafter cannot serve as configured; the message is one sentence for the operator."""


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
    """

    vocabulary: str
    vocabulary_size: int
    context_length: int
    model: Path | None = None
    device: str = "cpu"
    dtype: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)


class Drafter(Protocol):
    """Guesses for many sequences at a time, each a session.

    Nothing a drafter returns changes what the target says, so a drafter may be wrong, late or silent. It is called
    from one thread. Sessions it does not know are ignored.
    """

    name: str
    context_length: int

    def open(self, session: int, tokens: Sequence[int], sampling: Sampling, max_nodes: int) -> None:
        """Starts guessing for a sequence; ``max_nodes`` is the largest tree that is of use."""
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
