"""The form of a response, as the ledger keeps it."""

from __future__ import annotations

import re

import msgspec
from outrider.gateway.doors.responses.body import ResponseBody
from outrider.gateway.doors.responses.items import Message
from outrider.gateway.doors.responses.json_types import Echo
from outrider.gateway.doors.responses.narration import Telling
from outrider.gateway.generation.record import Key, Record
from outrider.gateway.tool_calls.reading import Reading
from outrider.mesh.errors import NotFound

PREFIX = "resp_"
_ID = re.compile(rf"{PREFIX}([A-Za-z0-9_-]{{1,64}})")


class ResponseShape(msgspec.Struct, frozen=True, tag="response"):
    """What the client asked a response to be, and the conversation before it, as JSON, for those that go on with it.

    ``ignored`` are names of parameters without effect, as they are told. ``bare`` is as in
    `outrider.gateway.doors.openai.stored_form.Shape`.
    """

    echo: Echo
    functions: tuple[str, ...]
    return_tokens: bool
    conversation: bytes
    ignored: tuple[str, ...] = ()
    bare: bool = False

    @classmethod
    def of(cls, body: ResponseBody, conversation: list[Message], ignored: tuple[str, ...] = ()) -> ResponseShape:
        """The form that ``body`` asks for."""
        told = msgspec.json.encode(conversation)
        return cls(_echo(body), body.functions, body.return_tokens, told, ignored, body.bare)

    def telling(self, key: Key, record: Record) -> Telling:
        """Tells the response, the same wherever and whenever."""
        return Telling(
            self.echo,
            key.request,
            reading=Reading(record.served.calls, self.functions, bare=self.bare) if self.functions else None,
            model=record.served.name,
            seed=record.seed,
            created=record.created,
            return_tokens=self.return_tokens,
            ignored=self.ignored,
        )

    def messages(self) -> list[Message]:
        """The conversation before the response."""
        return _messages(self.conversation)


encode_shape = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ResponseShape).decode
_messages = msgspec.json.Decoder(list[Message]).decode


def decode_shape(record: Record) -> ResponseShape:
    """The form in a record; `NotFound` where it is of a stream that is no response."""
    try:
        return _decode(record.shape)
    except msgspec.ValidationError:
        raise unknown() from None


def request_of(response: str) -> str:
    """The request that a response's id names; `NotFound` for what is no id."""
    found = _ID.fullmatch(response)
    if found is None:
        raise unknown()
    return found[1]


def unknown() -> NotFound:
    """Nothing is known of a response."""
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
        temperature=body.temperature,
        text={"format": {"type": "text"}} | _said(body.text),
        tool_choice=msgspec.to_builtins(choice),
        tools=msgspec.to_builtins(body.tools),
        top_logprobs=body.top_logprobs,
        top_p=1.0 if body.top_p is None else body.top_p,
    )


def _said(value: msgspec.Struct) -> dict[str, object]:
    return {name: said for name, said in msgspec.to_builtins(value).items() if said is not None}
