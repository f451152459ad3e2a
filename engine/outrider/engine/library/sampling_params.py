"""The parameters of a generation as users give them, and the engine's parameters that are made of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from outrider.engine.errors import RequestError
from outrider.engine.library.bounds import TOKEN_IDS, Flag, Integers, Numbers, check_length, check_text, refuse
from outrider.engine.requests import parameters
from outrider.engine.requests.parameters import GrammarText, Speculation, Thought
from outrider.engine.speculation.trees.tree import MOST_NODES

MOST_STOPS, MOST_STOP_IDS, MOST_BIASES, MOST_BAD_WORDS, MOST_DRAFTERS = 16, 64, 1024, 1024, 16
MOST_ALLOWED = 1 << 16
_BIAS = Numbers(-100, 100)
_BOUNDS: dict[str, Numbers | Integers | Flag] = {
    "temperature": Numbers(0, 100),
    "top_p": Numbers(0, 1, above=True),
    "top_k": Integers(0, TOKEN_IDS.most),
    "min_p": Numbers(0, 1),
    "seed": Integers(-(1 << 63), (1 << 63) - 1, "a random one"),
    "max_tokens": Integers(0, TOKEN_IDS.most, "as many as the context has room for"),
    "min_tokens": Integers(0, TOKEN_IDS.most),
    "ignore_eos": Flag(),
    "repetition_penalty": Numbers(0, 100, above=True),
    "frequency_penalty": Numbers(-2, 2),
    "presence_penalty": Numbers(-2, 2),
    "logprobs": Integers(0, 20, "no log-probabilities"),
    "echo": Flag(),
    "repeat_last_n": Integers(-1, TOKEN_IDS.most, "what each penalty counts by itself"),
    "include_stop_str_in_output": Flag(),
    "skip_special_tokens": Flag(),
    "thinking_budget": Integers(0, TOKEN_IDS.most, "any number of tokens"),
    "speculation": Flag(),
    "max_nodes": Integers(1, MOST_NODES, "as many as the engine's settings allow"),
    "private": Flag(),
    "return_drafts": Flag(),
}
_GRAMMARS = ("json_schema", "regex", "choice", "grammar")

Words = Callable[[Sequence[str]], list[tuple[int, ...]]]
"""Token ids of words, at a text's beginning and after a space."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are drawn, where an answer ends, what it has to be, and who may guess.

    Attributes:
        temperature: 0 takes the likeliest token; above 0 divides the logits.
        top_p: keeps the likeliest tokens that together have this probability.
        top_k: keeps so many of the likeliest tokens; 0 keeps all.
        min_p: drops tokens less likely than this share of the likeliest one's probability.
        seed: fixes the dice; None takes a random seed for each answer, which its result names.
        max_tokens: most generated tokens; None is as many as the context has room for.
        min_tokens: generated tokens before the answer may end.
        stop: text or texts that end the answer, and are not part of it.
        stop_token_ids: tokens that end the answer, beside the model's own.
        ignore_eos: whether the model's end-of-text ids do not end the answer.
        repetition_penalty: divides the positive logits of earlier tokens and multiplies the negative ones.
        frequency_penalty: is subtracted from a token's logit for each time that the answer has it.
        presence_penalty: is subtracted from the logits of tokens that the answer has.
        logit_bias: is added to the logits of tokens, by id.
        bad_words: words, or sequences of token ids, that the answer may not contain.
        allowed_token_ids: the only tokens of the answer; None allows all.
        repeat_last_n: tokens at the end of prompt and answer that the penalties count, 0 for none and -1 for all; None
            has ``repetition_penalty`` see all, and the other two count the answer alone.
        include_stop_str_in_output: whether the text has what ended it, a stop string or a stop token's text.
        skip_special_tokens: whether special tokens have no text; in thoughts they never have one.
        logprobs: likeliest tokens of each place to return with log-probabilities; None for no log-probabilities.
        echo: whether the prompt stands before the answer in the result.
        json_schema: JSON Schema that the answer has to fit, as a dictionary or as text.
        regex: regular expression that the whole answer has to match.
        choice: texts of which the answer is one.
        grammar: context-free grammar of the answer, in GBNF or llguidance's Lark.
        thinking_budget: most tokens of the thought in front of an answer to a chat; None for any number.
        speculation: whether drafters may guess.
        drafters: names of the drafters that may guess; () for all.
        max_nodes: most guesses of this answer in a step.
        private: whether nothing is learnt from the answer for later ones, and nothing guessed from earlier ones.
        return_drafts: whether results hold the tree of guesses of each step.
        prediction: text, or its token ids, that the answer is expected to be, in whole or in part: it is guessed, and
            changes no token. None expects nothing.

    Raises:
        RequestError: a parameter is not allowed; the error names it, and what is allowed.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: Sequence[str | Sequence[int]] = ()
    allowed_token_ids: Sequence[int] | None = None
    repeat_last_n: int | None = None
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None
    echo: bool = False
    json_schema: Mapping[str, Any] | str | None = None
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None
    thinking_budget: int | None = None
    speculation: bool = True
    drafters: Sequence[str] = ()
    max_nodes: int | None = None
    private: bool = False
    return_drafts: bool = False
    prediction: str | Sequence[int] | None = None

    def __post_init__(self) -> None:
        for name, bounds in _BOUNDS.items():
            bounds.check(name, getattr(self, name))
        self._check_ends()
        self._check_words()
        _check_texts("drafters", self.drafters, MOST_DRAFTERS)
        self._grammar_text()
        if not isinstance(self.prediction, str | None):
            check_length("prediction", self.prediction, (list, tuple), TOKEN_IDS.most, "a text or a list of token ids")
            _check_ids("prediction", self.prediction)

    def for_engine(self, seed: int, words: Words, thought: Thought | None = None) -> parameters.SamplingParams:
        """The engine's parameters, with the ``seed`` where these leave the choice, and the marks of a ``thought``."""
        made: dict[str, Any] = {
            "seed": seed if self.seed is None else self.seed,
            "stop": (self.stop,) if isinstance(self.stop, str) else tuple(self.stop),
            "stop_token_ids": tuple(self.stop_token_ids),
            "allowed_token_ids": tuple(self.allowed_token_ids or ()),
            "logit_bias": dict(self.logit_bias),
            "bad_words": self._bad_words(words),
            "grammar": self._grammar_text(),
            "thought": None if thought is None else replace(thought, budget=self.thinking_budget),
        }
        shared = {each.name for each in fields(parameters.SamplingParams)} - made.keys()
        return parameters.SamplingParams(**{name: getattr(self, name) for name in shared}, **made)

    def for_drafters(self) -> Speculation:
        """The engine's parameters of speculation; outputs always hold the guesses, of which results count."""
        off = not self.speculation
        return Speculation(tuple(self.drafters), self.max_nodes, off, return_drafts=True, private=self.private)

    def _check_ends(self) -> None:
        if self.max_tokens == 0 and not self.echo:
            refuse("max_tokens", "an integer of at least 1 (0 with echo)", 0)
        _check_texts("stop", [self.stop] if isinstance(self.stop, str) else self.stop, MOST_STOPS)
        allowed = f"a list of up to {MOST_STOP_IDS} token ids"
        check_length("stop_token_ids", self.stop_token_ids, (list, tuple), MOST_STOP_IDS, allowed)
        _check_ids("stop_token_ids", self.stop_token_ids)
        if self.allowed_token_ids is not None:
            allowed = f"a list of 1 to {MOST_ALLOWED} token ids"
            check_length("allowed_token_ids", self.allowed_token_ids or None, (list, tuple), MOST_ALLOWED, allowed)
            _check_ids("allowed_token_ids", self.allowed_token_ids)

    def _check_words(self) -> None:
        allowed = f"a dictionary of up to {MOST_BIASES} token ids with numbers from -100 to 100"
        check_length("logit_bias", self.logit_bias, Mapping, MOST_BIASES, allowed)
        _check_ids("logit_bias", self.logit_bias)
        for token, bias in self.logit_bias.items():
            _BIAS.check(f"logit_bias.{token}", bias)
        allowed = f"a list of up to {MOST_BAD_WORDS} words or lists of token ids"
        check_length("bad_words", self.bad_words, (list, tuple), MOST_BAD_WORDS, allowed)
        for place, word in enumerate(self.bad_words):
            if isinstance(word, str):
                check_text(f"bad_words[{place}]", word)
            elif not isinstance(word, list | tuple) or not word:
                refuse(f"bad_words[{place}]", "a text or a list of at least one token id", word)
            else:
                _check_ids(f"bad_words[{place}]", word)

    def _bad_words(self, words: Words) -> tuple[tuple[int, ...], ...]:
        texts = [word for word in self.bad_words if isinstance(word, str)]
        ids = [tuple(word) for word in self.bad_words if not isinstance(word, str)]
        if texts:
            ids += words(texts)
        if len(ids) > MOST_BAD_WORDS:
            why = f"become {len(ids)} sequences of token ids, of which there may be {MOST_BAD_WORDS}: give fewer words"
            raise RequestError(f"bad_words {why}", param="bad_words")
        return tuple(ids)

    def _grammar_text(self) -> GrammarText | None:
        """The definition of the answer's grammar; None without one."""
        given = [name for name in _GRAMMARS if getattr(self, name) is not None]
        if len(given) > 1:
            why = f"{given[1]} and {given[0]} both say what the answer has to be: give one of them"
            raise RequestError(why, param=given[1])
        if self.json_schema is not None:
            return GrammarText("json_schema", _schema_text(self.json_schema))
        if self.choice is not None:
            if not isinstance(self.choice, list | tuple) or not self.choice:
                refuse("choice", "a list of at least one text", self.choice)
            for place, text in enumerate(self.choice):
                if not isinstance(text, str):
                    refuse(f"choice[{place}]", "a text", text)
            return GrammarText("choice", json.dumps(list(self.choice)))
        text = self.regex if self.grammar is None else self.grammar
        if text is None:
            return None
        if not isinstance(text, str):
            refuse(given[0], "a text", text)
        return GrammarText("regex" if self.grammar is None else "context_free", text)


def _schema_text(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    if not isinstance(schema, Mapping):
        refuse("json_schema", "a dictionary or a text", schema)
    try:
        return json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RequestError(f"json_schema is no JSON: {error}", param="json_schema") from None


def _check_texts(name: str, texts: Any, most: int) -> None:
    check_length(name, texts, (list, tuple), most, f"a list of up to {most} texts, each of 1 to 1000 characters")
    for place, text in enumerate(texts):
        check_text(f"{name}[{place}]", text)


def _check_ids(name: str, ids: Any) -> None:
    for place, token in enumerate(ids):
        TOKEN_IDS.check(f"{name}[{place}]", token)
