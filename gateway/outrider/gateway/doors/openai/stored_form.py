"""The form of a stream's answer, as the ledger keeps it for whoever goes on with the stream."""

from __future__ import annotations

from typing import Literal

import msgspec
from outrider.gateway.doors.openai.answers import Writer
from outrider.gateway.doors.openai.forms import CHAT, COMPLETION, Form, calls_form
from outrider.gateway.generation.record import Key, Record
from outrider.gateway.requests.models import Served
from outrider.mesh.errors import NotFound


class Shape(msgspec.Struct, frozen=True, tag="chunks"):
    """What the client asked its chunks to be.

    ``functions`` are those that a chat may call; where ``bare``, also without the marks of the model's format. Where
    usage is included, ``continuous_usage`` has each chunk tell it so far. ``ignored`` are names of parameters without
    effect, as they are told.
    """

    kind: Literal["completion", "chat"]
    functions: tuple[str, ...]
    return_tokens: bool
    include_usage: bool
    continuous_usage: bool = False
    ignored: tuple[str, ...] = ()
    bare: bool = False

    def form(self, request_id: str, served: Served) -> Form:
        """The form of chunks of the request of that id, which the model ``served`` answers."""
        if self.functions:
            return calls_form(served.calls, self.functions, request_id, bare=self.bare)
        return CHAT if self.kind == "chat" else COMPLETION

    def writer(self, key: Key, record: Record) -> Writer:
        """A writer of the request's chunks, the same wherever and whenever it is made."""
        return Writer(
            self.form(key.request, record.served),
            key.request,
            record.served,
            record.seeds,
            answers=record.answers,
            return_tokens=self.return_tokens,
            ignored=self.ignored,
            created=record.created,
        )


encode_shape = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Shape).decode


def decode_shape(data: bytes) -> Shape:
    """The form in a record; `NotFound` where it is one of another front door."""
    try:
        return _decode(data)
    except msgspec.ValidationError:
        raise NotFound("there is no such stream: what has this id is a response", param="id") from None
