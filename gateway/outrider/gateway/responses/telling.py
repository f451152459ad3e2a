"""A response and its events: a function of its frames and nothing else, so that all who read it read the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import UNSET
from outrider.gateway.openai.answers import extra
from outrider.gateway.openai.logprobs import TokenLogprob, chat_logprobs
from outrider.gateway.openai.shapes import Extra
from outrider.gateway.openai.tools import Calling
from outrider.gateway.reassembly import join
from outrider.gateway.responses import events as to
from outrider.gateway.responses.shapes import (
    Echo,
    IncompleteDetails,
    InputDetails,
    ItemStatus,
    OutputCall,
    OutputDetails,
    OutputItem,
    OutputMessage,
    Response,
    ResponseError,
    ResponseUsage,
    Status,
    TextPart,
)
from outrider.mesh.errors import Cancelled, InvalidRequest, OutriderError
from outrider.wire.frames import Frame, Usage

_ENDS: dict[str, type[to.Completed] | type[to.Incomplete]] = {"completed": to.Completed, "incomplete": to.Incomplete}


class Telling:
    """Tells one response, frame by frame. Its calls, if it has to be any, are told whole at the end.

    ``request`` is the request's id, ``created`` is in seconds since 1970.
    """

    def __init__(
        self,
        echo: Echo,
        request: str,
        *,
        calling: Calling | None,
        model: str,
        seed: int,
        created: int,
        return_tokens: bool,
    ) -> None:
        self._echo, self._request, self._calling = echo, request, calling
        self._model, self._seed, self._created, self._return_tokens = model, seed, created, return_tokens
        self._frames: list[Frame] = []
        self._failure: OutriderError | None = None
        self._next = 0

    def begin(self) -> list[to.Event]:
        """The events before all frames."""
        told = self._response("in_progress", [])
        return self._numbered([to.Created(response=told), to.InProgress(response=told)])

    def take(self, frame: Frame) -> list[to.Event]:
        """The events of a frame."""
        first = not self._frames
        self._frames.append(frame)
        if self._calling is not None:
            return self._numbered([*self._end()]) if frame.finish is not None else []
        events = [*(self._open() if first else ()), *self._delta(frame)]
        if frame.finish is not None:
            events += self._end_message()
        return self._numbered(events)

    def fail(self, error: OutriderError) -> list[to.Event]:
        """The event of a failure that is in the frames, and will be there for all who read them."""
        self._failure = error
        return self._numbered([to.Failed(response=self.response())])

    def broken(self, error: OutriderError) -> to.Failure:
        """The event of a failure that passes: it has the number of the event before it."""
        code = getattr(error, "reason", None) or error.type
        return to.Failure(sequence_number=max(0, self._next - 1), message=error.message, code=code, param=error.param)

    @property
    def over(self) -> bool:
        """Whether there is no more to come."""
        return self._failure is not None or self._last is not None

    @property
    def whole(self) -> bool:
        """Whether it has come to its end without a failure."""
        return self._failure is None and self._last is not None

    def response(self) -> Response:
        """The response as it stands."""
        return self._response(self._status, self._items())

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(text for frame in self._frames for text in frame.texts)

    @property
    def _last(self) -> Frame | None:
        return self._frames[-1] if self._frames and self._frames[-1].finish is not None else None

    @property
    def _status(self) -> Status:
        if self._failure is not None:
            return "cancelled" if isinstance(self._failure, Cancelled) else "failed"
        if self._last is None:
            return "in_progress" if self._frames else "queued"
        return "incomplete" if self._last.finish == "length" else "completed"

    def _numbered(self, events: Sequence[to.Event]) -> list[to.Event]:
        for event in events:
            event.sequence_number = self._next
            self._next += 1
        return list(events)

    def _open(self) -> Iterator[to.Event]:
        yield to.ItemAdded(output_index=0, item=OutputMessage(self._message_id, "in_progress", []))
        yield to.PartAdded(output_index=0, item_id=self._message_id, part=TextPart(""))

    def _delta(self, frame: Frame) -> Iterator[to.Event]:
        text, logprobs = "".join(frame.texts), _logprobs([frame])
        told = frame.drafts is not None or (self._return_tokens and bool(frame.tokens))
        if text or logprobs or told:
            more = extra(frame, self._seed, self._return_tokens) if told else UNSET
            yield to.TextDelta(output_index=0, item_id=self._message_id, delta=text, logprobs=logprobs, outrider=more)

    def _end_message(self) -> Iterator[to.Event]:
        items = self._items()
        message = items[0]
        assert isinstance(message, OutputMessage)
        part = message.content[0]
        yield to.TextDone(output_index=0, item_id=message.id, text=part.text, logprobs=part.logprobs)
        yield to.PartDone(output_index=0, item_id=message.id, part=part)
        yield to.ItemDone(output_index=0, item=message)
        yield self._finish(items)

    def _end(self) -> Iterator[to.Event]:
        """What is told of an answer that had to be calls: those, or its text where it was cut short of them."""
        items = self._items()
        if isinstance(items[0], OutputMessage):
            yield from self._open()
            yield from self._delta(join(self._frames))
            yield from self._end_message()
            return
        for place, item in enumerate(items):
            if isinstance(item, OutputCall):
                yield from _call(item, place)
        yield self._finish(items)

    def _finish(self, items: list[OutputItem]) -> to.Event:
        return _ENDS[self._status](response=self._response(self._status, items))

    def _items(self) -> list[OutputItem]:
        """The output so far. Of an answer that has to be calls it is known at the end; its text, where it is none."""
        if not self._frames or (self._calling is not None and not self.over):
            return []
        part = TextPart(self.text, logprobs=_logprobs(self._frames))
        return [*self._calls()] or [OutputMessage(self._message_id, self._item_status, [part])]

    def _calls(self) -> Iterator[OutputCall]:
        calls = self._calling.calls(self.text, self._request) if self._calling is not None else None
        for place, call in enumerate(calls or ()):
            name, arguments = str(call.function.name), call.function.arguments
            yield OutputCall(f"fc_{self._request}_{place}", str(call.id), name, arguments, self._item_status)

    @property
    def _item_status(self) -> ItemStatus:
        status = self._status
        return status if status in ("in_progress", "completed") else "incomplete"

    @property
    def _message_id(self) -> str:
        return f"msg_{self._request}"

    def _response(self, status: Status, output: list[OutputItem]) -> Response:
        last = self._last
        return Response(
            **msgspec.structs.asdict(self._echo),
            id=f"resp_{self._request}",
            created_at=self._created,
            status=status,
            model=self._model,
            output=output,
            error=_error(self._failure),
            incomplete_details=IncompleteDetails("max_output_tokens") if status == "incomplete" else None,
            usage=_usage(last.usage) if last is not None and last.usage is not None else None,
            outrider=self._extra(),
        )

    def _extra(self) -> Extra | msgspec.UnsetType:
        return extra(join(self._frames), self._seed, self._return_tokens) if self._last is not None else UNSET


def _call(item: OutputCall, place: int) -> Iterator[to.Event]:
    began = msgspec.structs.replace(item, arguments="", status="in_progress")
    yield to.ItemAdded(output_index=place, item=began)
    yield to.ArgumentsDelta(output_index=place, item_id=item.id, delta=item.arguments)
    yield to.ArgumentsDone(output_index=place, item_id=item.id, arguments=item.arguments, name=item.name)
    yield to.ItemDone(output_index=place, item=item)


def _logprobs(frames: list[Frame]) -> list[TokenLogprob]:
    told = [logprobs for frame in frames if (logprobs := chat_logprobs(frame)) is not None]
    return [entry for each in told for entry in each.content]


def _error(failure: OutriderError | None) -> ResponseError | None:
    if failure is None or isinstance(failure, Cancelled):
        return None
    return ResponseError("invalid_prompt" if isinstance(failure, InvalidRequest) else "server_error", failure.message)


def _usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        usage.prompt_tokens,
        InputDetails(usage.cached_tokens),
        usage.completion_tokens,
        OutputDetails(usage.accepted_tokens, usage.rejected_tokens),
        usage.prompt_tokens + usage.completion_tokens,
    )
