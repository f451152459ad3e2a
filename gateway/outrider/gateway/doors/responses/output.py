"""A response's output as it comes: a message, calls of functions, or one and then the others."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import UNSET, UnsetType
from outrider.gateway.doors.openai.json_types import Extra
from outrider.gateway.doors.responses import events as to
from outrider.gateway.doors.responses.json_types import ItemStatus, OutputCall, OutputItem, OutputMessage, TextPart
from outrider.gateway.doors.schema.logprobs import TokenLogprob, chat_logprobs
from outrider.gateway.doors.schema.tools import call_id
from outrider.gateway.tool_calls.reading import Piece, Reading
from outrider.wire.frames import Frame


class Output:
    """The items of the request of an id; ``reading`` tells its calls, where it may be any."""

    def __init__(self, request: str, reading: Reading | None) -> None:
        self._request, self._reading = request, reading
        self._text, self._logprobs = "", list[TokenLogprob]()
        self._speaks = False
        self._calls: list[OutputCall] = []

    def take(self, frame: Frame, extra: Extra | UnsetType = UNSET) -> Iterator[to.Event]:
        """The events of a frame, but for the end of the last item; ``extra`` is told with its text."""
        pieces = [Piece("".join(frame.texts))] if self._reading is None else self._reading.take(frame)
        yield from self._say("".join(piece.text for piece in pieces if piece.place is None), frame, extra)
        for piece in pieces:
            if piece.place is not None:
                yield from self._call(piece)

    def end(self, status: ItemStatus) -> Iterator[to.Event]:
        """The events of the last item's end, which has this status then."""
        item = self.items(status)[-1]
        at = self._last
        if isinstance(item, OutputCall):
            yield to.ArgumentsDone(output_index=at, item_id=item.id, arguments=item.arguments, name=item.name)
        else:
            (part,) = item.content
            yield to.TextDone(output_index=at, item_id=item.id, text=part.text, logprobs=part.logprobs)
            yield to.PartDone(output_index=at, item_id=item.id, part=part)
        yield to.ItemDone(output_index=at, item=item)

    def items(self, last: ItemStatus) -> list[OutputItem]:
        """What there is; its last item has this status, and all before it are whole."""
        part = TextPart(self._text, logprobs=list(self._logprobs))
        told: list[OutputItem] = [OutputMessage(self._message_id, "completed", [part])] if self._speaks else []
        told += map(msgspec.structs.replace, self._calls)
        if told:
            told[-1].status = last
        return told

    def _say(self, text: str, frame: Frame, extra: Extra | UnsetType) -> Iterator[to.Event]:
        ends_silent = frame.finish is not None and self._last < 0 and not (self._reading and self._reading.called)
        if not self._speaks and (text or self._reading is None or ends_silent):
            self._speaks = True
            yield to.ItemAdded(output_index=0, item=OutputMessage(self._message_id, "in_progress", []))
            yield to.PartAdded(output_index=0, item_id=self._message_id, part=TextPart(""))
        if not self._speaks or self._calls:
            return
        told = chat_logprobs(frame)
        logprobs = [] if told is None else told.content
        self._text += text
        self._logprobs += logprobs
        if text or logprobs or extra is not UNSET:
            yield to.TextDelta(output_index=0, item_id=self._message_id, delta=text, logprobs=logprobs, outrider=extra)

    def _call(self, piece: Piece) -> Iterator[to.Event]:
        if piece.name is not None:
            if self._last >= 0:
                yield from self.end("completed")
            place = len(self._calls)
            id_, called = f"fc_{self._request}_{place}", call_id(self._request, place)
            self._calls.append(OutputCall(id_, called, piece.name, "", "in_progress"))
            yield to.ItemAdded(output_index=self._last, item=msgspec.structs.replace(self._calls[-1]))
        call = self._calls[-1]
        call.arguments += piece.text
        if piece.text:
            yield to.ArgumentsDelta(output_index=self._last, item_id=call.id, delta=piece.text)

    @property
    def _last(self) -> int:
        """Place of the last item; -1 where there is none."""
        return self._speaks + len(self._calls) - 1

    @property
    def _message_id(self) -> str:
        return f"msg_{self._request}"
