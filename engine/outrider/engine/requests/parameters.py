"""The parameters of a request, as the engine takes them. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

GrammarKind = Literal["json_schema", "regex", "context_free", "choice"]


@dataclass(frozen=True, slots=True)
class GrammarText:
    """The definition of a grammar that an answer has to follow.

    Attributes:
        kind: of the definition.
        text: JSON Schema, regular expression, context-free grammar in GBNF or llguidance's Lark, or a JSON array of
            texts of which the answer is one.
    """

    kind: GrammarKind
    text: str


@dataclass(frozen=True, slots=True)
class Mark:
    """What begins or ends a thought.

    Attributes:
        ids: the tokens that write the mark.
        text: the mark's text, which any tokens may write; empty where only ``ids`` are the mark.
    """

    ids: tuple[int, ...]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Thought:
    """How an answer marks off the thought in front of it, and how long that may be.

    Attributes:
        start: begins a thought.
        end: ends a thought; the answer proper follows.
        plain: begins an answer without a thought, where such an answer has a mark.
        budget: most tokens between the marks; None for any number.
    """

    start: Mark
    end: Mark
    plain: Mark | None = None
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn, and where the answer ends. Each default leaves the model's own distribution as it is.

    Attributes:
        temperature: divides the logits; up to 1e-5 the likeliest token is taken.
        top_p: keeps the likeliest tokens that together have this probability, above 0 to 1.
        top_k: keeps so many of the likeliest tokens; 0 keeps all.
        min_p: drops tokens less likely than this share of the likeliest one's probability, 0 to 1.
        seed: fixes the dice; of 64 bits.
        max_tokens: most generated tokens; None is as many as the context has room for.
        min_tokens: generated tokens before the answer may end.
        stop: texts that end the answer, and are not part of it.
        stop_token_ids: tokens that end the answer, beside the model's own.
        ignore_eos: whether the model's end-of-text ids do not end the answer.
        repetition_penalty: divides the positive logits of earlier tokens and multiplies the negative ones.
        frequency_penalty: is subtracted from a token's logit for each time that the answer has it.
        presence_penalty: is subtracted from the logits of tokens that the answer has.
        logit_bias: is added to the logits of tokens, by id.
        bad_words: sequences of tokens that the answer may not contain.
        allowed_token_ids: the only tokens of the answer; () allows all.
        repeat_last_n: tokens at the end of prompt and answer that the penalties count, 0 for none and -1 for all; None
            has ``repetition_penalty`` see all, and the other two count the answer alone.
        include_stop_str_in_output: whether the text has what ended it, a stop string or a stop token's text.
        skip_special_tokens: whether special tokens have no text; in thoughts they never have one.
        logprobs: likeliest tokens of each place to return with log-probabilities; None for no log-probabilities.
        echo: whether the prompt is returned before the answer.
        grammar: grammar of the answer, which begins behind the thought where there is one.
        thought: the marks of a thought; None takes all text for the answer's.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: tuple[tuple[int, ...], ...] = ()
    allowed_token_ids: tuple[int, ...] = ()
    repeat_last_n: int | None = None
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None
    echo: bool = False
    grammar: GrammarText | None = None
    thought: Thought | None = None


@dataclass(frozen=True, slots=True)
class Speculation:
    """Which drafters may guess for a request, () for all, and how many guesses of it a step verifies at most.

    Attributes:
        off: whether none may guess.
        return_drafts: whether the outputs hold the verified guesses.
        private: whether nothing is learnt from the answer for later requests, and nothing guessed from earlier answers.
    """

    drafters: tuple[str, ...] = ()
    max_nodes: int | None = None
    off: bool = False
    return_drafts: bool = False
    private: bool = False
