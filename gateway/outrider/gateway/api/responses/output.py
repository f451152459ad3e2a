"""The output of a response: a thought, a message and calls of functions, in this order, each if there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile

import msgspec
from msgspec import UNSET, UnsetType
from outrider.gateway.api.openai.json_types import Extra
from outrider.gateway.api.responses import events as event_types
from outrider.gateway.api.responses.json_types import (
    ItemStatus,
    OutputCall,
    OutputItem,
    OutputMessage,
    OutputThought,
    TextPart,
    ThoughtPart,
)
from outrider.gateway.api.responses.tools import qualified
from outrider.gateway.api.schema.logprobs import TokenLogprob, chat_logprobs
from outrider.gateway.api.schema.tools import call_id
from outrider.gateway.stream.reassembly import split
from outrider.gateway.tool_calls.answer_reader import AnswerPiece, AnswerReader
from outrider.wire.frames import Frame


class Output:
    """The output items of the request with the id ``request``; ``reader`` finds its calls, if it may call functions.

    ``namespaces`` are as in `outrider.gateway.api.responses.tools.namespaces`. ``seal`` seals the whole thought, if
    the client asked for that.
    """

    def __init__(
        self,
        request: str,
        reader: AnswerReader | None,
        namespaces: Mapping[str, str] | None = None,
        seal: Callable[[str], str] | None = None,
    ) -> None:
        self._request, self._reader, self._namespaces, self._seal = request, reader, namespaces or {}, seal
        self._text, self._logprobs, self._thought = "", list[TokenLogprob](), ""
        self._held = list[TokenLogprob]()
        self._has_message = False
        self._calls: list[OutputCall] = []

    def take(self, frame: Frame, extra: Extra | UnsetType = UNSET, thought: str = "") -> Iterator[event_types.Event]:
        """The events of ``frame``, except the end of the last item; ``extra`` goes into the event of its text.

        ``thought`` is the text of a thought that the frame adds; it is in no text of the frame.
        """
        if thought:
            yield from self._add_thought(thought)
        pieces, logprobs = self._read(frame)
        text = "".join(piece.text for piece in takewhile(lambda piece: piece.place is None, pieces))
        begins = bool(text) or (self._reader is None and bool(frame.tokens)) or self._ends_empty(frame)
        yield from self._add_text(text, logprobs, extra, begins=begins)
        for piece in pieces:
            if piece.place is not None:
                yield from self._add_call(piece)

    def end(self, status: ItemStatus) -> Iterator[event_types.Event]:
        """The events of the end of the last item, which then has ``status``."""
        item = self.items(status)[-1]
        at = self._last
        if isinstance(item, OutputCall):
            yield event_types.ArgumentsDone(output_index=at, item_id=item.id, arguments=item.arguments, name=item.name)
        elif isinstance(item, OutputThought):
            (thought,) = item.content
            yield event_types.ThoughtDone(output_index=at, item_id=item.id, text=thought.text)
            yield event_types.PartDone(output_index=at, item_id=item.id, part=thought)
        else:
            (part,) = item.content
            yield event_types.TextDone(output_index=at, item_id=item.id, text=part.text, logprobs=part.logprobs)
            yield event_types.PartDone(output_index=at, item_id=item.id, part=part)
        yield event_types.ItemDone(output_index=at, item=item)

    def items(self, last: ItemStatus) -> list[OutputItem]:
        """The items so far; the last one has the status ``last``, and the others are completed."""
        items: list[OutputItem] = []
        if self._thought:
            sealed = UNSET if self._seal is None else self._seal(self._thought)
            items.append(OutputThought(self._thought_id, [ThoughtPart(self._thought)], "completed", sealed))
        if self._has_message:
            part = TextPart(self._text, logprobs=list(self._logprobs))
            items.append(OutputMessage(self._message_id, "completed", [part]))
        items += [msgspec.structs.replace(call, status="completed") for call in self._calls]
        if items:
            items[-1].status = last
        return items

    def _read(self, frame: Frame) -> tuple[Sequence[AnswerPiece], list[TokenLogprob]]:
        """The pieces of ``frame``, and the log-probabilities of the tokens of its text, those held back included.

        They do not depend on how frames divide the tokens; tokens of calls have none.
        """
        told = chat_logprobs(frame)
        if self._reader is None:
            return [AnswerPiece("".join(frame.texts))], [] if told is None else told.content
        if told is None:
            return self._reader.take(frame), []
        pieces, released = list[AnswerPiece](), list[TokenLogprob]()
        for logprob in [*told.content, None]:
            token, frame = split(frame, 1) if logprob is not None else (frame, frame)
            self._held += [] if logprob is None else [logprob]
            new = self._reader.take(token)
            pieces += new
            if new and not self._reader.called:
                released, self._held = released + self._held, []
        return pieces, released

    def _ends_empty(self, frame: Frame) -> bool:
        none = not (self._has_message or self._calls)
        return frame.finish is not None and none and not (self._reader and self._reader.called)

    def _add_thought(self, text: str) -> Iterator[event_types.Event]:
        id_ = self._thought_id
        if not self._thought:
            yield event_types.ItemAdded(output_index=0, item=OutputThought(id_, [], "in_progress"))
            yield event_types.PartAdded(output_index=0, item_id=id_, part=ThoughtPart(""))
        self._thought += text
        yield event_types.ThoughtDelta(output_index=0, item_id=id_, delta=text)

    def _add_text(
        self, text: str, logprobs: list[TokenLogprob], extra: Extra | UnsetType, *, begins: bool
    ) -> Iterator[event_types.Event]:
        if not self._has_message and begins and not self._calls:
            if self._last >= 0:
                yield from self.end("completed")
            self._has_message = True
            message = OutputMessage(self._message_id, "in_progress", [])
            yield event_types.ItemAdded(output_index=self._last, item=message)
            yield event_types.PartAdded(output_index=self._last, item_id=self._message_id, part=TextPart(""))
        if not self._has_message or self._calls:
            return
        self._text += text
        self._logprobs += logprobs
        if text or logprobs or extra is not UNSET:
            yield event_types.TextDelta(
                output_index=self._last, item_id=self._message_id, delta=text, logprobs=logprobs, outrider=extra
            )

    def _add_call(self, piece: AnswerPiece) -> Iterator[event_types.Event]:
        if piece.name is not None:
            if self._last >= 0:
                yield from self.end("completed")
            self._calls.append(self._call(piece.name))
            yield event_types.ItemAdded(output_index=self._last, item=msgspec.structs.replace(self._calls[-1]))
        call = self._calls[-1]
        call.arguments += piece.text
        if piece.text:
            yield event_types.ArgumentsDelta(output_index=self._last, item_id=call.id, delta=piece.text)

    def _call(self, name: str) -> OutputCall:
        """The next call, of the function that the model knows as ``name``."""
        place, namespace = len(self._calls), self._namespaces.get(name, UNSET)
        if namespace is not UNSET:
            name = name.removeprefix(qualified(namespace, ""))
        id_, called = f"fc_{self._request}_{place}", call_id(self._request, place)
        return OutputCall(id_, called, name, "", "in_progress", namespace)

    @property
    def _last(self) -> int:
        """Index of the last item; -1 if there is none."""
        return bool(self._thought) + self._has_message + len(self._calls) - 1

    @property
    def _message_id(self) -> str:
        return f"msg_{self._request}"

    @property
    def _thought_id(self) -> str:
        return f"rs_{self._request}"
