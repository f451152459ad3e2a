"""The form of a response in the ledger."""

from __future__ import annotations

import re
import time
from typing import Any

import msgspec
from outrider.gateway.api.responses.body import SEALED, ResponseBody
from outrider.gateway.api.responses.builder import ResponseBuilder
from outrider.gateway.api.responses.items import Message
from outrider.gateway.api.responses.json_types import Echo
from outrider.gateway.api.responses.tools import namespaces
from outrider.gateway.api.schema.thoughts import Seal
from outrider.gateway.ledger.record import Key, Record
from outrider.gateway.schemas.parameters import ParameterTypes
from outrider.gateway.tool_calls.answer_reader import AnswerReader
from outrider.mesh.errors import NotFound

PREFIX = "resp_"
_ID = re.compile(rf"{PREFIX}([A-Za-z0-9_-]{{1,64}})")


class ResponseShape(msgspec.Struct, frozen=True, tag="response"):
    """The form of a response, and ``conversation``, the messages before it as JSON.

    ``ignored`` names the parameters without effect. ``functions``, ``bare``, ``types`` and ``obfuscated`` are as in
    `outrider.gateway.api.openai.answers.Shape`, ``namespaces`` as in `Output`. The thought is sealed, too, where
    ``sealed``.
    """

    echo: Echo
    functions: tuple[str, ...]
    return_tokens: bool
    conversation: bytes
    ignored: tuple[str, ...] = ()
    bare: bool = False
    types: tuple[ParameterTypes, ...] = ()
    namespaces: dict[str, str] = {}
    sealed: bool = False
    obfuscated: bool = False

    @classmethod
    def of(cls, body: ResponseBody, conversation: list[Message], ignored: tuple[str, ...] = ()) -> ResponseShape:
        """The form that ``body`` asks for, after ``conversation``."""
        messages = msgspec.json.encode(conversation)
        rules = body.call_rules
        return cls(
            _echo(body),
            body.functions,
            body.return_tokens,
            messages,
            ignored,
            body.bare,
            types=() if rules is None else rules.types,
            namespaces=namespaces(body.tools),
            sealed=SEALED in body.include,
            obfuscated=body.obfuscated,
        )

    def builder(self, key: Key, record: Record, seal: Seal) -> ResponseBuilder:
        """A builder of the response: all builders of one response with one key of ``seal`` build the same."""
        return ResponseBuilder(
            self.echo,
            key.request,
            reader=AnswerReader(record.served.calls, self.functions, self.types, bare=self.bare)
            if self.functions
            else None,
            model=record.served.name,
            seed=record.seed,
            created=record.created,
            return_tokens=self.return_tokens,
            ignored=self.ignored,
            namespaces=self.namespaces,
            seal=(lambda thought: seal.close(thought, key.tenant)) if self.sealed else None,
        )

    def messages(self) -> list[Message]:
        """The conversation before the response."""
        return _messages(self.conversation)


encode_shape = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ResponseShape).decode
_messages = msgspec.json.Decoder(list[Message]).decode


def decode_shape(record: Record) -> ResponseShape:
    """The form in ``record``; raises `NotFound` if the record is not of a response."""
    try:
        return _decode(record.shape)
    except msgspec.ValidationError:
        raise unknown_response() from None


def request_id_of(response: str) -> str:
    """The request id in the id of a response; raises `NotFound` if ``response`` cannot be such an id."""
    match = _ID.fullmatch(response)
    if match is None:
        raise unknown_response()
    return match[1]


def unbegun_response(body: ResponseBody, request: str) -> ResponseBuilder:
    """A builder of a response that could not begin; ``request`` is its request's id."""
    told: Any = {"model": body.model, "created": int(time.time()), "seed": 0, "return_tokens": False}
    return ResponseBuilder(_echo(body), request, reader=None, **told)


def unknown_response() -> NotFound:
    """The error for an unknown response."""
    return NotFound("there is no such response: it was never stored, is too old, or was deleted", param="id")


def _echo(body: ResponseBody) -> Echo:
    choice = "auto" if body.tool_choice is None else body.tool_choice
    return Echo(
        background=body.background,
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        metadata=body.metadata,
        parallel_tool_calls=body.parallel_tool_calls,
        previous_response_id=body.previous_response_id,
        store=body.store,
        temperature=1.0 if body.temperature is None else body.temperature,
        text={"format": {"type": "text"}} | _without_nulls(body.text),
        tool_choice=msgspec.to_builtins(choice),
        tools=msgspec.to_builtins(body.tools),
        top_logprobs=body.top_logprobs,
        top_p=1.0 if body.top_p is None else body.top_p,
        truncation=body.truncation,
    )


def _without_nulls(value: msgspec.Struct) -> dict[str, object]:
    return {name: entry for name, entry in msgspec.to_builtins(value).items() if entry is not None}
