"""What a user gets: the increments of an answer, and the whole of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from outrider.engine.requests.output import Draft, Finish, Likelihood, Output, Usage

T = TypeVar("T")
_NOTHING = Output("", 0, [], [], [])


@dataclass(frozen=True, slots=True)
class Guesses:
    """Guesses of one drafter that steps verified: those that became tokens of the answer, and the others."""

    accepted: int
    rejected: int


@dataclass(frozen=True, slots=True)
class Increment:
    """The tokens that one step added to an answer. ``text`` is final; it may be empty while half a character waits.

    Attributes:
        text: text of the tokens; without half characters, and without what may become a stop text.
        reasoning: text of the tokens that belongs to the thought in front of the answer.
        token_ids: one or more, and maybe none in the last increment.
        guessed_by: the drafter that guessed each token; empty where the target decided it alone.
        finish_reason: set in the last increment: ``stop``, ``length``, ``error``, ``refused`` or ``cancelled``.
        error: why the engine ended the answer, for ``error`` and ``refused``.
        usage: tokens and steps; in the last increment.
        logprobs: of each token, where they were asked for.
        drafts: the tree of guesses of the step, where it was asked for.
    """

    text: str
    token_ids: list[int]
    guessed_by: list[str]
    finish_reason: Finish | None = None
    error: str | None = None
    usage: Usage | None = None
    logprobs: list[Likelihood] | None = None
    drafts: list[Draft] | None = None
    reasoning: str = ""

    @classmethod
    def of(cls, output: Output, *, drafts: bool) -> Increment:
        """The increment in an ``output`` of the engine, with the trees of guesses if ``drafts``."""
        return cls(
            "".join(output.texts[output.thought :]),
            output.tokens,
            output.guessed_by,
            output.finish,
            output.error,
            output.usage,
            output.likelihoods,
            output.drafts if drafts else None,
            "".join(output.texts[: output.thought]),
        )


@dataclass(frozen=True, slots=True)
class Result:
    """An answer, as far as it goes.

    Attributes:
        prompt_token_ids: ids of the prompt.
        text: text of the answer, behind that of the prompt if it is echoed.
        reasoning: text of the thought in front of the answer.
        token_ids: ids of the answer, with the id that ended it; behind those of the prompt if it is echoed.
        finish_reason: ``stop``, ``length``, ``error`` or ``refused``; ``cancelled`` for a stream that was closed.
        error: why the engine ended the answer, for ``error`` and ``refused``.
        seed: of the dice; the same seed gives the same tokens.
        guessed_by: the drafter that guessed each token; empty where the target decided it alone.
        guesses: accepted and rejected guesses by drafter.
        usage: tokens, steps, and guesses of all drafters; None for a stream that was closed.
        logprobs: of each token, where they were asked for.
        drafts: the trees of guesses, step by step, where they were asked for.
    """

    prompt_token_ids: list[int]
    text: str
    token_ids: list[int]
    finish_reason: Finish
    error: str | None
    seed: int
    guessed_by: list[str]
    guesses: dict[str, Guesses]
    usage: Usage | None
    logprobs: list[Likelihood] | None = None
    drafts: list[Draft] | None = None
    reasoning: str = ""

    @classmethod
    def of(cls, prompt: list[int], seed: int, outputs: Sequence[Output], *, drafts: bool) -> Result:
        """The result of the ``outputs`` so far, with the trees of guesses if ``drafts``."""
        last = outputs[-1] if outputs else _NOTHING
        trees = _joined(output.drafts for output in outputs)
        return cls(
            prompt,
            "".join(text for output in outputs for text in output.texts[output.thought :]),
            [token for output in outputs for token in output.tokens],
            last.finish or Finish.CANCELLED,
            last.error,
            seed,
            [name for output in outputs for name in output.guessed_by],
            _guesses(trees or ()),
            last.usage,
            _joined(output.likelihoods for output in outputs),
            trees if drafts else None,
            "".join(text for output in outputs for text in output.texts[: output.thought]),
        )


def _joined(parts: Iterable[list[T] | None]) -> list[T] | None:
    """The joined ``parts``; None if all of them are."""
    given = [part for part in parts if part is not None]
    return [each for part in given for each in part] if given else None


def _guesses(trees: Iterable[Draft]) -> dict[str, Guesses]:
    accepted: Counter[str] = Counter()
    verified: Counter[str] = Counter()
    for tree in trees:
        verified.update(tree.guessed_by)
        accepted.update(tree.guessed_by[node] for node in tree.accepted)
    return {name: Guesses(accepted[name], count - accepted[name]) for name, count in sorted(verified.items())}
