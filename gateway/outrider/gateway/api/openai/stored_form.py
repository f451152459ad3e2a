"""The form of a stream's answer in the ledger, for gateways that resume the stream."""

from __future__ import annotations

from typing import Literal

import msgspec
from outrider.gateway.api.openai.answers import AnswerWriter
from outrider.gateway.api.openai.forms import CHAT, COMPLETION, Form, calls_form
from outrider.gateway.ledger.record import Key, Record
from outrider.gateway.request.models import ServedModel
from outrider.mesh.errors import NotFound


class Shape(msgspec.Struct, frozen=True, tag="chunks"):
    """The form of chunks that the client asked for.

    ``functions`` names the functions that a chat may call, if ``bare`` also without the marks of the model's format.
    With ``include_usage``, the stream ends with its usage; with ``continuous_usage``, each chunk holds the usage so
    far. ``ignored`` names the parameters without effect. ``shows_metrics`` is as in `AnswerWriter`.
    """

    kind: Literal["completion", "chat"]
    functions: tuple[str, ...]
    return_tokens: bool
    include_usage: bool
    continuous_usage: bool = False
    ignored: tuple[str, ...] = ()
    bare: bool = False
    shows_metrics: bool = False

    def form(self, request_id: str, served: ServedModel) -> Form:
        """The form of the chunks of request ``request_id``, which the model ``served`` answers."""
        if self.functions:
            return calls_form(served.calls, self.functions, request_id, bare=self.bare)
        return CHAT if self.kind == "chat" else COMPLETION

    def writer(self, key: Key, record: Record) -> AnswerWriter:
        """A writer of the request's chunks: all writers of one request write the same."""
        return AnswerWriter(
            self.form(key.request, record.served),
            key.request,
            record.served,
            record.seeds,
            answers=record.answers,
            return_tokens=self.return_tokens,
            ignored=self.ignored,
            created=record.created,
            shows_metrics=self.shows_metrics,
        )


encode_shape = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Shape).decode


def decode_shape(data: bytes) -> Shape:
    """The form in ``data``; raises `NotFound` if it is the form of a response."""
    try:
        return _decode(data)
    except msgspec.ValidationError:
        raise NotFound("there is no stream with this id: the id belongs to a response", param="id") from None
