"""Checks requests against the model's limits, and makes them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from outrider.engine.errors import RequestError
from outrider.engine.models.pooling import Pooling
from outrider.engine.requests.parameters import SamplingParams, Speculation, Thought
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """The limits that requests are checked against.

    Attributes:
        vocabulary_size: number of ids; every id is below it.
        context_length: most tokens of prompt and answer together.
        eos_ids: the model's end-of-text ids.
        drafters: names of the drafters that a request may name.
        pooling: makes embeddings.
    """

    vocabulary_size: int
    context_length: int
    eos_ids: frozenset[int]
    drafters: AbstractSet[str]
    pooling: Pooling = "last"

    def request(
        self,
        name: str,
        tenant: str,
        prompt: list[int],
        parameters: SamplingParams,
        speculation: Speculation,
        emitted: Sequence[int] = (),
        prediction: Sequence[int] = (),
        *,
        embeds: bool = False,
        **more: Any,
    ) -> Request:
        """The checked request; ``more`` are further fields of `Request`. One that ``embeds`` wants no answer.

        A grammar has to be compiled elsewhere and put into the request.

        Raises:
            RequestError: a parameter is not allowed; the error names it, and what is allowed.
        """
        if embeds:
            parameters, speculation = SamplingParams(temperature=0.0, max_tokens=0), Speculation(off=True)
        room = self._check_tokens(prompt, emitted, 0 if parameters.max_tokens == 0 else 1)
        max_tokens = room if parameters.max_tokens is None else min(parameters.max_tokens, room)
        check(parameters.max_tokens != 0 or parameters.echo or embeds, "max_tokens", "must be at least 1, not 0")
        _check_ends(parameters, max_tokens)
        self._check_ids(parameters)
        self._check_drafters(speculation)
        self._check_prediction(prediction)
        return Request(
            id=name,
            tenant=tenant,
            prompt=prompt,
            sampling=Sampling.of(
                parameters.temperature, parameters.top_k, parameters.top_p, parameters.min_p, parameters.seed
            ),
            max_tokens=max_tokens,
            emitted=list(emitted),
            stop_ids=frozenset(parameters.stop_token_ids) | (frozenset() if parameters.ignore_eos else self.eos_ids),
            parameters=parameters,
            speculation=speculation,
            prediction=list(prediction),
            pooling=self.pooling if embeds else None,
            **more,
        )

    def _check_tokens(self, prompt: Sequence[int], emitted: Sequence[int], least: int) -> int:
        """Checks that the tokens leave room for an answer of ``least`` tokens; the room behind the prompt."""
        self._require_known(prompt, "prompt")
        self._require_known(emitted, "emitted")
        check(prompt, "prompt", "must hold at least one token")
        check(
            len(prompt) + len(emitted) + least <= self.context_length or emitted,
            "prompt",
            f"has {len(prompt)} tokens; the model's context of {self.context_length} must leave room for an answer",
        )
        return self.context_length - len(prompt)

    def _check_prediction(self, prediction: Sequence[int]) -> None:
        self._require_known(prediction, "prediction")
        check(
            len(prediction) <= self.context_length,
            "prediction",
            f"has {len(prediction)} tokens; the model's context holds {self.context_length}",
        )

    def _check_ids(self, parameters: SamplingParams) -> None:
        self._require_known(parameters.stop_token_ids, "stop_token_ids")
        self._require_known(parameters.logit_bias, "logit_bias")
        self._require_known(parameters.allowed_token_ids, "allowed_token_ids")
        for word in parameters.bad_words:
            self._require_known(word, "bad_words")
        if parameters.thought is not None:
            self._check_thought(parameters.thought)

    def _check_thought(self, thought: Thought) -> None:
        for mark in filter(None, (thought.start, thought.end, thought.plain)):
            check(mark.ids, "thought", "has a mark without tokens")
            self._require_known(mark.ids, "thought")
        check(thought.budget is None or thought.budget >= 0, "thought", "has a budget below 0")

    def _check_drafters(self, speculation: Speculation) -> None:
        unknown = [] if speculation.off else sorted(set(speculation.drafters) - set(self.drafters))
        there = ", ".join(sorted(self.drafters)) or "none"
        check(not unknown, "speculation.drafters", f"names {', '.join(unknown)}; there are: {there}")

    def _require_known(self, ids: Collection[int], param: str) -> None:
        """Raises `RequestError` for an id outside the vocabulary."""
        inside = not ids or (min(ids) >= 0 and max(ids) < self.vocabulary_size)
        check(inside, param, f"holds an id outside the vocabulary of {self.vocabulary_size}")


def check(holds: object, param: str, why: str) -> None:
    """Raises `RequestError` about ``param`` unless the condition ``holds``."""
    if not holds:
        raise RequestError(f"{param} {why}", param=param)


def _check_ends(parameters: SamplingParams, max_tokens: int) -> None:
    """Checks how short and how long the answer may be; ``max_tokens`` is what the context has room for."""
    check(
        parameters.min_tokens <= max_tokens,
        "min_tokens",
        f"must be at most the {max_tokens} tokens that the answer may have, not {parameters.min_tokens}",
    )
    if parameters.grammar is not None:
        why = "may not be given with a grammar: the grammar decides where the answer may end"
        check(not parameters.ignore_eos, "ignore_eos", why)
        check(not parameters.min_tokens, "min_tokens", why)
