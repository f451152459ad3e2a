"""The output of a response: a message, calls of functions, or a message and then calls."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import UNSET, UnsetType
from outrider.gateway.api.openai.json_types import Extra
from outrider.gateway.api.responses import events as event_types
from outrider.gateway.api.responses.json_types import ItemStatus, OutputCall, OutputItem, OutputMessage, TextPart
from outrider.gateway.api.schema.logprobs import TokenLogprob, chat_logprobs
from outrider.gateway.api.schema.tools import call_id
from outrider.gateway.tool_calls.answer_reader import AnswerPiece, AnswerReader
from outrider.wire.frames import Frame


class Output:
    """The output items of the request with the id ``request``; ``reader`` finds its calls, if it may call functions."""

    def __init__(self, request: str, reader: AnswerReader | None) -> None:
        self._request, self._reader = request, reader
        self._text, self._logprobs = "", list[TokenLogprob]()
        self._has_message = False
        self._calls: list[OutputCall] = []

    def take(self, frame: Frame, extra: Extra | UnsetType = UNSET) -> Iterator[event_types.Event]:
        """The events of ``frame``, except the end of the last item; ``extra`` goes into the event of its text."""
        pieces = [AnswerPiece("".join(frame.texts))] if self._reader is None else self._reader.take(frame)
        yield from self._add_text("".join(piece.text for piece in pieces if piece.place is None), frame, extra)
        for piece in pieces:
            if piece.place is not None:
                yield from self._add_call(piece)

    def end(self, status: ItemStatus) -> Iterator[event_types.Event]:
        """The events of the end of the last item, which then has ``status``."""
        item = self.items(status)[-1]
        at = self._last
        if isinstance(item, OutputCall):
            yield event_types.ArgumentsDone(output_index=at, item_id=item.id, arguments=item.arguments, name=item.name)
        else:
            (part,) = item.content
            yield event_types.TextDone(output_index=at, item_id=item.id, text=part.text, logprobs=part.logprobs)
            yield event_types.PartDone(output_index=at, item_id=item.id, part=part)
        yield event_types.ItemDone(output_index=at, item=item)

    def items(self, last: ItemStatus) -> list[OutputItem]:
        """The items so far; the last one has the status ``last``, and the others are completed."""
        part = TextPart(self._text, logprobs=list(self._logprobs))
        items: list[OutputItem] = [OutputMessage(self._message_id, "completed", [part])] if self._has_message else []
        items += map(msgspec.structs.replace, self._calls)
        if items:
            items[-1].status = last
        return items

    def _add_text(self, text: str, frame: Frame, extra: Extra | UnsetType) -> Iterator[event_types.Event]:
        ends_empty = frame.finish is not None and self._last < 0 and not (self._reader and self._reader.called)
        if not self._has_message and (text or self._reader is None or ends_empty):
            self._has_message = True
            yield event_types.ItemAdded(output_index=0, item=OutputMessage(self._message_id, "in_progress", []))
            yield event_types.PartAdded(output_index=0, item_id=self._message_id, part=TextPart(""))
        if not self._has_message or self._calls:
            return
        frame_logprobs = chat_logprobs(frame)
        logprobs = [] if frame_logprobs is None else frame_logprobs.content
        self._text += text
        self._logprobs += logprobs
        if text or logprobs or extra is not UNSET:
            yield event_types.TextDelta(
                output_index=0, item_id=self._message_id, delta=text, logprobs=logprobs, outrider=extra
            )

    def _add_call(self, piece: AnswerPiece) -> Iterator[event_types.Event]:
        if piece.name is not None:
            if self._last >= 0:
                yield from self.end("completed")
            place = len(self._calls)
            id_, called = f"fc_{self._request}_{place}", call_id(self._request, place)
            self._calls.append(OutputCall(id_, called, piece.name, "", "in_progress"))
            yield event_types.ItemAdded(output_index=self._last, item=msgspec.structs.replace(self._calls[-1]))
        call = self._calls[-1]
        call.arguments += piece.text
        if piece.text:
            yield event_types.ArgumentsDelta(output_index=self._last, item_id=call.id, delta=piece.text)

    @property
    def _last(self) -> int:
        """Index of the last item; -1 if there is none."""
        return self._has_message + len(self._calls) - 1

    @property
    def _message_id(self) -> str:
        return f"msg_{self._request}"
