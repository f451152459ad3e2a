"""``/v1/tokenize``, ``/v1/detokenize`` and ``/v1/tokenizer_info``, and all without ``/v1``, in vLLM's shapes."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from outrider.gateway.api.http.messages import json_response, read_body, until_disconnected
from outrider.gateway.api.schema.ignored import announce, collector
from outrider.gateway.api.schema.parameters import read, read_query
from outrider.gateway.api.schema.prompts import TemplateKwargs, chat
from outrider.gateway.api.schema.tools import Tool, template_tools
from outrider.gateway.api.schema.unsupported import TOKENIZE
from outrider.gateway.request.generation import Messages, Text
from outrider.gateway.request.intake import Generations
from outrider.gateway.settings import GatewaySettings
from outrider.mesh.errors import InvalidRequest
from outrider.wire.bounds import Flag, TokenId
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_Model = Annotated[str, Meta(min_length=1, description="the name of a model")]


class TokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``POST /v1/tokenize``: a prompt or a chat; llama-server calls a prompt ``content``.

    The special tokens around ``content`` are left out unless ``add_special``.
    """

    model: _Model | None = None
    content: Annotated[str, Meta(description="a string")] | None = None
    add_special: Flag = False
    prompt: Annotated[str, Meta(description="a string")] | None = None
    messages: (
        Annotated[
            list[dict[str, Any]], Meta(min_length=1, description="an array of messages with a role and a content")
        ]
        | None
    ) = None
    add_special_tokens: Flag | None = None
    parse_special_tokens: Flag | None = None
    add_generation_prompt: Flag | None = None
    chat_template_kwargs: TemplateKwargs | None = None
    tools: (
        Annotated[
            list[Tool],
            Meta(max_length=128, description='an array of objects like {"type": "function", "function": {...}}'),
        ]
        | None
    ) = None

    def to_prompt(self) -> Text | Messages:
        """The prompt to encode; raises `InvalidRequest` for parameters that contradict each other."""
        if self.content is not None:
            if self.prompt is not None or self.messages is not None:
                raise InvalidRequest("content may not be given with prompt or messages", param="content")
            return Text(self.content, self.add_special, self.parse_special_tokens)
        if self.messages is None:
            return self._text()
        if self.prompt is not None:
            raise InvalidRequest("prompt and messages may not be given together", param="prompt")
        for name in ("add_special_tokens", "parse_special_tokens"):
            if getattr(self, name):
                why = "the model's template puts special tokens into messages: leave it out, or set it to false"
                raise InvalidRequest(f"{name} is not supported with messages: {why}", param=name)
        answering = self.add_generation_prompt is not False
        messages = chat(self.messages, self.chat_template_kwargs)
        return msgspec.structs.replace(messages, tools=template_tools(self.tools or []), answering=answering)

    def _text(self) -> Text:
        if self.prompt is None:
            raise InvalidRequest("prompt or messages is required: a string, or an array of messages", param="prompt")
        for name in ("add_generation_prompt", "tools", "chat_template_kwargs"):
            if getattr(self, name) is not None:
                raise InvalidRequest(f"{name} may only be given with messages", param=name)
        return Text(self.prompt, self.add_special_tokens is not False, self.parse_special_tokens)


class DetokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``POST /v1/detokenize``."""

    model: _Model | None = None
    tokens: Annotated[list[TokenId], Meta(description="an array of token ids")]


class Tokenized(msgspec.Struct):
    """The token ids of a prompt, their number, and the number of tokens that the model's context holds."""

    count: int
    max_model_len: int
    tokens: list[int]


class Detokenized(msgspec.Struct):
    """The text of token ids, special tokens included; ``content`` is llama-server's name of it."""

    prompt: str
    content: str


class TokenizerQuery(msgspec.Struct, frozen=True):
    """Query of ``GET /v1/tokenizer_info``."""

    model: _Model | None = None


class TokenizerInfo(msgspec.Struct):
    """What a client needs to tokenize as the model does: special tokens by name, and the template of chats."""

    model: str
    bos_token: str | None
    eos_token: str | None
    pad_token: str | None
    unk_token: str | None
    chat_template: str | None


class TokenizeRoutes:
    """Routes that use the tokenizers of generations."""

    def __init__(self, generations: Generations, settings: GatewaySettings) -> None:
        self._generations, self._settings = generations, settings
        self.routes = [
            Route(prefix + path, answer, methods=["POST"])
            for prefix in ("/v1", "")
            for path, answer in (("/tokenize", self._tokenize), ("/detokenize", self._detokenize))
        ]
        self.routes += [Route(prefix + "/tokenizer_info", self._describe) for prefix in ("/v1", "")]

    async def _tokenize(self, request: Request) -> Response:
        ignored = collector(self._settings)
        body = read(await read_body(request, self._settings.max_body_bytes), TokenizeBody, TOKENIZE, ignored)
        announce(request, ignored)
        prompt = body.to_prompt()
        caller = request.state.admission.caller
        served = await self._generations.find(body.model, caller)
        ids = await until_disconnected(request.receive, self._generations.encode(served, prompt, caller))
        return json_response(Tokenized(len(ids), served.context_length, ids))

    async def _detokenize(self, request: Request) -> Response:
        ignored = collector(self._settings)
        body = read(await read_body(request, self._settings.max_body_bytes), DetokenizeBody, ignored=ignored)
        announce(request, ignored)
        served = await self._generations.find(body.model, request.state.admission.caller)
        try:
            text = await until_disconnected(request.receive, self._generations.decode(served, body.tokens))
        except InvalidRequest as error:
            raise InvalidRequest(error.message, param="tokens") from None
        return json_response(Detokenized(text, text))

    async def _describe(self, request: Request) -> Response:
        query = read_query(request.query_params, TokenizerQuery)
        served = await self._generations.find(query.model, request.state.admission.caller)
        described = await until_disconnected(request.receive, self._generations.describe(served))
        bos, eos, pad, unk = (described.special_tokens.get(f"{name}_token") for name in ("bos", "eos", "pad", "unk"))
        return json_response(TokenizerInfo(served.name, bos, eos, pad, unk, described.chat_template or None))
