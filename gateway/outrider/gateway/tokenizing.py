"""``/v1/tokenize`` and ``/v1/detokenize``, and both without ``/v1``, in vLLM's shapes."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from outrider.gateway.generations import Generations
from outrider.gateway.http import json_response, read_body, until_gone
from outrider.gateway.openai.common import Flag, TokenId
from outrider.gateway.openai.parameters import read
from outrider.gateway.openai.prompts import chat
from outrider.gateway.openai.tools import Tool, shown
from outrider.gateway.request import Messages, Text
from outrider.gateway.settings import GatewaySettings
from outrider.mesh.errors import InvalidRequest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_Model = Annotated[str, Meta(min_length=1, description="the name of a model")]


class TokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``POST /v1/tokenize``: a prompt or a chat."""

    model: _Model | None = None
    prompt: Annotated[str, Meta(description="a string")] | None = None
    messages: (
        Annotated[
            list[dict[str, Any]], Meta(min_length=1, description="an array of messages with a role and a content")
        ]
        | None
    ) = None
    add_special_tokens: Flag | None = None
    add_generation_prompt: Flag | None = None
    tools: (
        Annotated[
            list[Tool],
            Meta(max_length=128, description='an array of objects like {"type": "function", "function": {...}}'),
        ]
        | None
    ) = None

    def asked(self) -> Text | Messages:
        """What is to be encoded; `InvalidRequest` for what does not go together."""
        if self.messages is None:
            return self._text()
        if self.prompt is not None:
            raise InvalidRequest("prompt and messages may not be given together", param="prompt")
        if self.add_special_tokens:
            why = "the model's template puts special tokens into messages: leave it out, or set it to false"
            raise InvalidRequest(
                f"add_special_tokens is not supported with messages: {why}", param="add_special_tokens"
            )
        answering = self.add_generation_prompt is not False
        return msgspec.structs.replace(chat(self.messages), tools=shown(self.tools or []), answering=answering)

    def _text(self) -> Text:
        if self.prompt is None:
            raise InvalidRequest("prompt or messages is required: a string, or an array of messages", param="prompt")
        for name in ("add_generation_prompt", "tools"):
            if getattr(self, name) is not None:
                raise InvalidRequest(f"{name} may only be given with messages", param=name)
        return Text(self.prompt, self.add_special_tokens is not False)


class DetokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``POST /v1/detokenize``."""

    model: _Model | None = None
    tokens: Annotated[list[TokenId], Meta(description="an array of token ids")]


class Tokenized(msgspec.Struct):
    """The token ids of a text, how many they are, and how many the model's context holds."""

    count: int
    max_model_len: int
    tokens: list[int]


class Detokenized(msgspec.Struct):
    """The text of token ids, special tokens included."""

    prompt: str


NEUTRAL: dict[str, tuple[Any, ...]] = {
    "return_token_strs": (False,),
    "continue_final_message": (False,),
    "chat_template": (None,),
    "chat_template_kwargs": ({},),
}
"""Parameters of vLLM's that are not honoured."""


class Tokenizing:
    """Asks the tokenizers that generations ask."""

    def __init__(self, generations: Generations, settings: GatewaySettings) -> None:
        self._generations, self._settings = generations, settings
        self.routes = [
            Route(prefix + path, answer, methods=["POST"])
            for prefix in ("/v1", "")
            for path, answer in (("/tokenize", self._tokenize), ("/detokenize", self._detokenize))
        ]

    async def _tokenize(self, request: Request) -> Response:
        body = read(await read_body(request, self._settings.max_body_bytes), TokenizeBody, NEUTRAL)
        asked = body.asked()
        served = await self._generations.find(body.model, request.state.admission.caller)
        ids = await until_gone(request.receive, self._generations.encode(served, asked))
        return json_response(Tokenized(len(ids), served.context_length, ids))

    async def _detokenize(self, request: Request) -> Response:
        body = read(await read_body(request, self._settings.max_body_bytes), DetokenizeBody, {})
        served = await self._generations.find(body.model, request.state.admission.caller)
        try:
            text = await until_gone(request.receive, self._generations.decode(served, body.tokens))
        except InvalidRequest as error:
            raise InvalidRequest(error.message, param="tokens") from None
        return json_response(Detokenized(text))
