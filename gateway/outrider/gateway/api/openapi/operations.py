"""The parameters, answers and errors of each route, as the types that the routes themselves use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from outrider.gateway.admission.limit_store import LimitReached
from outrider.gateway.api.anthropic import json_types as anthropic
from outrider.gateway.api.anthropic.body import MessagesBody
from outrider.gateway.api.embeddings.bodies import EmbeddingBody, Embeddings, Ranks, RerankBody, ScoreBody, Scores
from outrider.gateway.api.http.edge import guarded
from outrider.gateway.api.openai.bodies import ChatBody, CompletionBody
from outrider.gateway.api.openai.json_types import AnswerOf, DeltaChoice, MessageChoice, TextChoice
from outrider.gateway.api.openai.resumption import StreamQuery
from outrider.gateway.api.openapi.constraints import (
    LOGIT_BIAS,
    MESSAGES,
    PROMPT,
    SOME,
    TOOLS,
    TRUE,
    TURNS,
    Schema,
    one_of,
    only_with,
)
from outrider.gateway.api.own.model_list import ModelBody, ModelInfo, ModelList, ModelPage
from outrider.gateway.api.own.named_prompts import PromptBody, PromptList, StoredPrompt
from outrider.gateway.api.own.readiness import Health, Ready, Version
from outrider.gateway.api.own.tokenizing import (
    DetokenizeBody,
    Detokenized,
    TokenizeBody,
    Tokenized,
    TokenizerInfo,
    TokenizerQuery,
)
from outrider.gateway.api.responses import query
from outrider.gateway.api.responses.body import ResponseBody
from outrider.gateway.api.responses.events import Event
from outrider.gateway.api.responses.inputs import InputItems, InputQuery, InputTokens
from outrider.gateway.api.responses.items import Item
from outrider.gateway.api.responses.json_types import Deleted, Response
from outrider.gateway.api.schema import unsupported
from outrider.gateway.api.schema.generation import Milliseconds
from outrider.gateway.api.schema.parameters import UnsupportedParameters
from outrider.gateway.errors import (
    VERSION,
    DeadlinePassed,
    ErrorAnswer,
    MessagesErrorAnswer,
    MethodNotAllowed,
    TimedOut,
    TooLarge,
    UnknownModel,
    WrongContentType,
)
from outrider.gateway.identity.refusals import InvalidKey, TooManyFailures, WrongNetwork, WrongScope
from outrider.mesh.errors import (
    Cancelled,
    DeadlineExceeded,
    DeadlineUnmeetable,
    Internal,
    InvalidRequest,
    NotFound,
    OutriderError,
    Overloaded,
    Unavailable,
)

Errors = tuple[type[OutriderError], ...]


class BodySpec(msgspec.Struct, frozen=True):
    """The parameters of a body: its type, the known but unsupported parameters, and an example.

    ``refined`` holds a narrower type, or a schema, for fields that the route checks after reading. The whole body also
    has to fit all ``rules``. Components named in ``untyped`` may leave their ``type`` out.
    """

    kind: type[msgspec.Struct]
    unsupported: UnsupportedParameters = UnsupportedParameters()
    example: Mapping[str, Any] = {}
    refined: Mapping[str, Any] = {}
    untyped: tuple[str, ...] = ()
    rules: tuple[Schema, ...] = ()


class Operation(msgspec.Struct, frozen=True):
    """A method of a path. ``events`` are the types of a stream's events; with ``done`` the last event is ``[DONE]``.
    ``lines`` are the types of the lines of a stream of JSON.

    ``answer`` is a type, or a tuple of several; ``error`` has those of errors.
    ``empty`` describes the answer 204, if there is one. A ``page`` is answered with HTML, or with 304.
    """

    summary: str
    body: BodySpec | None = None
    query: type[msgspec.Struct] | None = None
    headers: Mapping[str, Any] = {}
    answer: Any = None
    events: tuple[Any, ...] = ()
    lines: tuple[Any, ...] = ()
    done: bool = False
    text: bool = False
    page: bool = False
    empty: str = ""
    errors: Errors = ()
    error: tuple[Any, ...] = (ErrorAnswer,)


READ_ERRORS: Errors = (InvalidRequest, TooLarge, TimedOut, WrongContentType)
SERVED: Errors = (UnknownModel, Overloaded, DeadlineUnmeetable, Cancelled, DeadlineExceeded, DeadlinePassed)
TIMEOUT = {"x-request-timeout-ms": Milliseconds}
HEADERS = {
    "x-outrider-on-disconnect": Literal["cancel", "continue"],
    "x-outrider-session": str,
    "x-outrider-coalesce": Literal["true", "false"],
    **TIMEOUT,
}
_COMPLETION_EVENTS = (AnswerOf[TextChoice], ErrorAnswer)
_CHAT_EVENTS = (AnswerOf[DeltaChoice], ErrorAnswer)
_CHAT = {"messages": [{"role": "user", "content": "def f("}], "max_tokens": 4}
_BIAS = {"logit_bias": LOGIT_BIAS}
_STREAMED = only_with("stream_options", None, "stream", TRUE)

_COMPLETION_BODY = BodySpec(
    CompletionBody,
    unsupported.COMPLETION,
    {"prompt": "def f(", "max_tokens": 4},
    _BIAS | {"prompt": PROMPT},
    rules=(
        _STREAMED,
        {
            "anyOf": [
                {"not": {"required": ["max_tokens"], "properties": {"max_tokens": {"const": 0}}}},
                {"required": ["echo"], "properties": {"echo": TRUE}},
            ]
        },
    ),
)
_CHAT_BODY = BodySpec(
    ChatBody,
    unsupported.CHAT,
    _CHAT,
    _BIAS | {"messages": MESSAGES},
    rules=(_STREAMED, only_with("top_logprobs", 0, "logprobs", TRUE)),
)
_RESPONSE_BODY = BodySpec(
    ResponseBody,
    unsupported.RESPONSE,
    {"input": "def f(", "max_output_tokens": 4},
    _BIAS | {"input": str | list[Item], "tools": TOOLS},
    ("InputMessage",),
    (
        only_with("top_logprobs", 0, "include", SOME),
        {"not": {"required": ["background", "store"], "properties": {"background": TRUE, "store": {"const": False}}}},
    ),
)
_MESSAGES_BODY = BodySpec(
    MessagesBody, unsupported.MESSAGES, _CHAT, _BIAS | {"messages": TURNS, "tools": {"type": "array"}}
)

_TOKENIZER = Operation(
    "The special tokens and the chat template of a model.",
    query=TokenizerQuery,
    answer=TokenizerInfo,
    errors=(InvalidRequest, *SERVED),
)
_TOKENIZE = Operation(
    "The token ids of a prompt or a chat.",
    BodySpec(
        TokenizeBody,
        unsupported.TOKENIZE,
        {"prompt": "def f("},
        {"messages": MESSAGES},
        rules=(
            {
                "anyOf": [
                    one_of("prompt", "messages"),
                    {"required": ["content"], "properties": {"content": {"type": "string"}}},
                ]
            },
            only_with("tools", None, "messages", SOME),
            only_with("add_generation_prompt", None, "messages", SOME),
            only_with("add_special_tokens", False, "prompt", {"type": "string"}),
            only_with("parse_special_tokens", False, "prompt", {"type": "string"}),
        ),
    ),
    answer=Tokenized,
    errors=READ_ERRORS + SERVED,
)
_DETOKENIZE = Operation(
    "The text of token ids.",
    BodySpec(DetokenizeBody, example={"tokens": [3, 4]}),
    answer=Detokenized,
    errors=READ_ERRORS + SERVED,
)
_EMBED = Operation(
    "Embeddings of texts.",
    BodySpec(EmbeddingBody, example={"input": "def f("}, refined={"input": PROMPT}),
    headers=TIMEOUT,
    answer=Embeddings,
    errors=READ_ERRORS + SERVED,
)
_RERANK = Operation(
    "Documents by how near they are to a query.",
    BodySpec(RerankBody, example={"query": "def f(", "documents": ["def g(", "import os"]}),
    headers=TIMEOUT,
    answer=Ranks,
    errors=READ_ERRORS + SERVED,
)
_SCORE = Operation(
    "How near texts are to each other.",
    BodySpec(ScoreBody, example={"text_1": "def f(", "text_2": ["def g(", "import os"]}),
    headers=TIMEOUT,
    answer=Scores,
    errors=READ_ERRORS + SERVED,
)
_READY = Operation("Whether a completion would succeed.", answer=Ready, errors=(Unavailable,))

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", "/v1/completions"): Operation(
        "Completes a prompt.",
        _COMPLETION_BODY,
        headers=HEADERS,
        answer=AnswerOf[TextChoice],
        events=_COMPLETION_EVENTS,
        done=True,
        errors=READ_ERRORS + SERVED,
    ),
    ("POST", "/v1/chat/completions"): Operation(
        "Answers a chat.",
        _CHAT_BODY,
        headers=HEADERS,
        answer=AnswerOf[MessageChoice],
        events=_CHAT_EVENTS,
        done=True,
        errors=READ_ERRORS + SERVED,
    ),
    ("POST", "/v1/responses"): Operation(
        "Makes a response, in the foreground or in the background.",
        _RESPONSE_BODY,
        headers=HEADERS,
        answer=Response,
        events=(Event,),
        errors=READ_ERRORS + SERVED,
    ),
    ("GET", "/v1/responses/{id}"): Operation(
        "A stored response, or its events behind one of them.",
        query=query.ResponseQuery,
        answer=Response,
        events=(Event,),
        errors=(InvalidRequest, NotFound, Overloaded),
    ),
    ("DELETE", "/v1/responses/{id}"): Operation("Ends and forgets a response.", answer=Deleted, errors=(NotFound,)),
    ("POST", "/v1/responses/{id}/cancel"): Operation(
        "Ends a background response.", answer=Response, errors=(InvalidRequest, NotFound)
    ),
    ("GET", "/v1/responses/{id}/input_items"): Operation(
        "What was said before a response.",
        query=InputQuery,
        answer=InputItems,
        errors=(InvalidRequest, NotFound),
    ),
    ("POST", "/v1/responses/input_tokens"): Operation(
        "The tokens that a response would be asked with.",
        _RESPONSE_BODY,
        answer=InputTokens,
        errors=READ_ERRORS + SERVED,
    ),
    ("POST", "/v1/responses/compact"): Operation("Refused: conversations are not compacted.", errors=(NotFound,)),
    ("GET", "/v1/streams/{id}"): Operation(
        "A stream behind the event that was read last.",
        query=StreamQuery,
        headers={"last-event-id": str},
        events=(*_COMPLETION_EVENTS, *_CHAT_EVENTS),
        done=True,
        empty="The event was the last.",
        errors=(InvalidRequest, NotFound, Overloaded),
    ),
    ("DELETE", "/v1/streams/{id}"): Operation("Ends and forgets a stream.", empty="It is gone.", errors=(NotFound,)),
    ("POST", "/v1/messages"): Operation(
        "Answers a conversation in Anthropic's form.",
        _MESSAGES_BODY,
        headers=HEADERS,
        answer=anthropic.Message,
        events=(anthropic.Event,),
        errors=READ_ERRORS + SERVED,
        error=(MessagesErrorAnswer,),
    ),
    ("POST", "/v1/messages/count_tokens"): Operation(
        "The tokens that a conversation in Anthropic's form would be asked with.",
        _MESSAGES_BODY,
        answer=anthropic.TokenCount,
        errors=READ_ERRORS + SERVED,
        error=(MessagesErrorAnswer,),
    ),
    ("GET", "/v1/models"): Operation(
        "All models that are served.",
        headers={VERSION: str},
        answer=(ModelList, ModelPage),
        error=(ErrorAnswer, MessagesErrorAnswer),
    ),
    ("GET", "/v1/models/{model}"): Operation(
        "One model.",
        headers={VERSION: str},
        answer=(ModelBody, ModelInfo),
        errors=(UnknownModel,),
        error=(ErrorAnswer, MessagesErrorAnswer),
    ),
    ("POST", "/v1/embeddings"): _EMBED,
    ("POST", "/v1/rerank"): _RERANK,
    ("POST", "/v2/rerank"): _RERANK,
    ("POST", "/rerank"): _RERANK,
    ("POST", "/v1/score"): _SCORE,
    ("POST", "/score"): _SCORE,
    ("POST", "/v1/tokenize"): _TOKENIZE,
    ("POST", "/tokenize"): _TOKENIZE,
    ("POST", "/v1/detokenize"): _DETOKENIZE,
    ("POST", "/detokenize"): _DETOKENIZE,
    ("GET", "/v1/tokenizer_info"): _TOKENIZER,
    ("GET", "/tokenizer_info"): _TOKENIZER,
    ("GET", "/v1/prompts"): Operation("All named prompts, without their texts.", answer=PromptList),
    ("PUT", "/v1/prompts/{name}"): Operation(
        "Names a prompt, which verifiers then keep computed.",
        BodySpec(
            PromptBody,
            example={"prompt": "def f("},
            refined={"messages": MESSAGES},
            rules=(one_of("prompt", "messages"),),
        ),
        answer=StoredPrompt,
        errors=(*READ_ERRORS, UnknownModel),
    ),
    ("GET", "/v1/prompts/{name}"): Operation("A named prompt.", answer=StoredPrompt, errors=(InvalidRequest, NotFound)),
    ("DELETE", "/v1/prompts/{name}"): Operation(
        "Forgets a named prompt.", empty="It is gone.", errors=(InvalidRequest, NotFound)
    ),
    ("GET", "/"): Operation("The playground, for a browser.", headers={"if-none-match": str}, page=True),
    ("GET", "/healthz"): Operation("Whether the process lives.", answer=Health),
    ("GET", "/readyz"): _READY,
    ("GET", "/health"): _READY,
    ("GET", "/ping"): _READY,
    ("POST", "/ping"): _READY,
    ("GET", "/version"): Operation("The version of Outrider.", answer=Version),
    ("GET", "/metrics"): Operation("Prometheus metrics.", text=True),
    ("GET", "/openapi.json"): Operation("This document.", answer=dict[str, Any]),
}


def errors_of(path: str, operation: Operation) -> Errors:
    """All errors of an operation: its own, and those of the access control and the router before it."""
    guard: Errors = (
        (InvalidKey, WrongNetwork, WrongScope, TooManyFailures, LimitReached, Unavailable) if guarded(path) else ()
    )
    return tuple(dict.fromkeys((*operation.errors, *guard, MethodNotAllowed, Internal)))
