"""A model in this process: its answers, whole and as they grow."""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from os import PathLike
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from outrider.engine.errors import RequestError, SettingsError
from outrider.engine.library.embeddings import embeddings
from outrider.engine.library.loading import engine_settings
from outrider.engine.library.prompts import (
    Message,
    Prompt,
    chat_ids,
    listed_chats,
    listed_prompts,
    predicted_ids,
    prompt_ids,
    word_ids,
)
from outrider.engine.library.results import Result
from outrider.engine.library.running_engine import RunningEngine
from outrider.engine.library.sampling_params import SamplingParams
from outrider.engine.library.streams import Asked, AsyncStream, Stream
from outrider.engine.logits.deep_threads import in_deep_thread
from outrider.engine.logits.grammar import Grammar
from outrider.engine.needs import need
from outrider.engine.requests import parameters
from outrider.engine.requests.parameters import GrammarText, Speculation, Thought
from outrider.engine.target import Target
from outrider.engine.text import Tokenizer
from outrider.engine.text.errors import TextError
from outrider.engine.thoughts.marks import NAMES, marks_of

T = TypeVar("T")
Tools = Sequence[Mapping[str, Any]]

_TENANT = "library"
_SEED_BITS = 53  # seeds of meshes have as many: they survive clients whose numbers are doubles
_DEFAULTS = SamplingParams()


class LLM:
    """A model that answers. Any threads and event loops may call it at once: their answers share its steps.

    Args:
        model: directory or GGUF file, ``pocket`` for the shipped one, or a name of the Hugging Face Hub:
            ``org/repository[:file][@revision]``.
        draft: a head for this model, or a smaller model with the same vocabulary, named likewise, that guesses.
        drafters: names of drafters that guess; ``auto`` for ``ngram`` and ``suffix``, () for none.
        device: torch device: ``cpu``, ``cuda`` or ``cuda:N``.
        dtype: of the weights: ``auto``, ``float32``, ``bfloat16`` or ``float16``.
        reasoning: marks of the thoughts in front of answers to chats: ``auto`` for those of the chat template, ``off``
            to take thoughts for text, a name of `outrider.engine.thoughts.marks.STYLES`, or a pair of texts.
        settings: other settings of a verifier's engine, by name (`EngineSettings`).

    Raises:
        TypeError: there is no such setting.
        SettingsError: the model or a setting cannot be used here.
        MissingPackage: a package is not installed.
    """

    def __init__(
        self,
        model: str | PathLike[str] = "pocket",
        *,
        draft: str | PathLike[str] | None = None,
        drafters: str | Sequence[str] = "auto",
        device: str = "cpu",
        dtype: str = "auto",
        reasoning: str | tuple[str, str] = "auto",
        **settings: Any,
    ) -> None:
        named = {"device": device, "dtype": dtype, **settings}
        wanted = engine_settings(str(model), None if draft is None else str(draft), drafters, named)
        need("tokenizers", "texts of models")
        self._run(Target.load(wanted), reasoning)

    @classmethod
    def over(cls, target: Target, *, reasoning: str | tuple[str, str] = "auto") -> Self:
        """The loaded ``target`` as an LLM, which alone may use it."""
        made = cls.__new__(cls)
        made._run(target, reasoning)
        return made

    def _run(self, target: Target, reasoning: str | tuple[str, str]) -> None:
        self._target, self._marks = target, _marks(target.tokenizer, reasoning)
        self._limits = replace(target.model_limits, context_length=target.room)
        self._numbers, self._swaps = count(), count(1)
        self._engine = RunningEngine(target)
        self._close = weakref.finalize(self, self._engine.stop)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._target.tokenizer

    @property
    def context_length(self) -> int:
        """Most tokens of a prompt and its answer."""
        return self._target.room

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[Result]:
        """The answers to texts, or lists of token ids, in their order.

        Args:
            prompts: one or several.
            params: for all prompts, or one for each; None for the defaults.

        Raises:
            RequestError: a prompt or a parameter is not allowed; nothing was generated.
            EngineStopped: the engine has ended.
        """
        return self._results(listed_prompts(prompts), params, self._asked)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> list[Result]:
        """The assistant's answers to chats, in their order; calls of functions are text in the model's own format.

        Args:
            messages: one chat, or several.
            params: for all chats, or one for each; None for the defaults.
            tools: functions that the answer may call, for the chat template.
            variables: further variables for the chat template.

        Raises:
            RequestError: a chat or a parameter is not allowed; nothing was generated.
            EngineStopped: the engine has ended.
        """
        return self._results(listed_chats(messages), params, partial(self._asked_chat, tools, variables))

    def embed(self, texts: Prompt | Sequence[Prompt]) -> NDArray[np.float32]:
        """The embeddings of texts, or of lists of token ids: float32 [texts, hidden_size], each of length 1.

        Raises:
            RequestError: a text is not allowed; nothing was embedded.
            EngineStopped: the engine has ended.
        """
        self._engine.check()
        return embeddings(self._asked_embedding, listed_prompts(texts), self._target.runner.model.config.hidden_size)

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Stream:
        """The answer to one prompt as it grows; raises as `generate`."""
        return Stream(self._asked(prompt, params))

    def stream_chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams | None = None,
        *,
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> Stream:
        """The answer to one chat as it grows; arguments and errors are those of `chat`."""
        return Stream(self._asked_chat(tools, variables, messages, params))

    def astream(self, prompt: Prompt, params: SamplingParams | None = None) -> AsyncStream:
        """The answer to one prompt for ``async for``; the first increment raises as `generate`."""
        return AsyncStream(partial(self._asked, prompt, params))

    def astream_chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams | None = None,
        *,
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> AsyncStream:
        """The answer to one chat for ``async for``; the first increment raises as `chat`."""
        return AsyncStream(partial(self._asked_chat, tools, variables, messages, params))

    def swap(self, drafter: str, model: str | PathLike[str] | None) -> None:
        """Has another version of a drafter guess from the next step on. Answers go on, and no token changes.

        It guesses as ``drafter@v1``, ``drafter@v2`` and so on. If tokens a second fall, the version before comes back,
        which the log tells.

        Args:
            drafter: name of the drafter, such as ``head``.
            model: its other model, named as in ``LLM``; None for the drafter that the settings have, if any.

        Raises:
            SettingsError: the drafter cannot use this model; the version before goes on.
            EngineStopped: the engine has ended.
        """
        self._engine.check()
        made = self._target.drafter(drafter, None if model is None else str(model))
        self._engine.swap(drafter, made, "" if model is None else f"v{next(self._swaps)}")

    def close(self) -> None:
        """Ends all answers and the engine, as the end of a ``with`` block does. The memory is free with the object."""
        self._close()
        self._target.tokenizer.forget()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _results(
        self,
        prompts: Sequence[T],
        params: SamplingParams | Sequence[SamplingParams] | None,
        ask: Callable[[T, SamplingParams | None], Asked],
    ) -> list[Result]:
        """The results of all ``prompts``, which are asked together, and end together if the caller is interrupted."""
        asked = [ask(prompt, each) for prompt, each in zip(prompts, _for_each(params, len(prompts)), strict=True)]
        streams: list[Stream] = []
        try:
            streams += map(Stream, asked)
            return [stream.result() for stream in streams]
        finally:
            for stream in streams:
                stream.close()

    def _asked(self, prompt: Prompt, params: SamplingParams | None) -> Asked:
        self._engine.check()
        return self._checked(prompt_ids(self.tokenizer, prompt), params)

    def _asked_chat(
        self,
        tools: Tools | None,
        variables: Mapping[str, Any] | None,
        messages: Sequence[Message],
        params: SamplingParams | None,
    ) -> Asked:
        self._engine.check()
        return self._checked(chat_ids(self.tokenizer, messages, tools, variables), params, self._marks)

    def _checked(self, prompt: list[int], params: SamplingParams | None, marks: Thought | None = None) -> Asked:
        """The checked request for an answer to ``prompt``; `RequestError` if it is not allowed."""
        params = _DEFAULTS if params is None else params
        if not isinstance(params, SamplingParams):
            raise RequestError(f"params must be SamplingParams, not {type(params).__name__}", param="params")
        seed = secrets.randbits(_SEED_BITS)
        if params.thinking_budget is not None and marks is None:
            why = "needs a chat with a model that marks its thoughts: see the argument reasoning of LLM"
            raise RequestError(f"thinking_budget {why}", param="thinking_budget")
        sampling = params.for_engine(seed, partial(word_ids, self.tokenizer), marks)
        grammar = None if sampling.grammar is None else self._grammar(sampling.grammar)
        request = self._limits.request(
            str(next(self._numbers)),
            _TENANT,
            prompt,
            sampling,
            params.for_drafters(),
            prediction=predicted_ids(self.tokenizer, params.prediction),
            grammar=grammar,
            thinking=None if sampling.thought is None else self._target.tracker(sampling.thought),
        )
        return Asked(request, sampling.seed, params.return_drafts, self._engine, self)

    def _asked_embedding(self, text: Prompt) -> Asked:
        ids, name = prompt_ids(self.tokenizer, text), str(next(self._numbers))
        request = self._limits.request(name, _TENANT, ids, parameters.SamplingParams(), Speculation(), embeds=True)
        return Asked(request, 0, False, self._engine, self)

    def _grammar(self, source: GrammarText) -> Grammar:
        """The compiled grammar, compiled in a thread whose stack is deep enough."""
        grammars = self._target.grammars
        return (
            grammars.find(source, _TENANT) or in_deep_thread(partial(grammars.compile, source, None, _TENANT)).result()
        )


def _marks(tokenizer: Tokenizer, reasoning: str | tuple[str, str]) -> Thought | None:
    try:
        if not isinstance(reasoning, str):
            return marks_of(tokenizer, "off", *reasoning)
        if reasoning not in NAMES:
            raise SettingsError(f"reasoning must be {', '.join(NAMES)} or a pair of texts, not {reasoning!r}")
        return marks_of(tokenizer, reasoning)
    except TextError as error:
        raise SettingsError(str(error)) from None


def _for_each(
    params: SamplingParams | Sequence[SamplingParams] | None, prompts: int
) -> Iterable[SamplingParams | None]:
    """The parameters of each prompt."""
    if params is None or isinstance(params, SamplingParams):
        return [params] * prompts
    if not isinstance(params, list | tuple) or len(params) != prompts:
        count = f"{len(params)} of" if isinstance(params, list | tuple) else f"{type(params).__name__} instead of"
        raise RequestError(
            f"params must be one SamplingParams, or one for each of {prompts} prompts; there are {count} them",
            param="params",
        )
    return params
