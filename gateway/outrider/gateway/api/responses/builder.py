"""Builds a response and its events from nothing but its frames, so that all readers get the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import UNSET
from outrider.gateway.api.openai.answers import extra
from outrider.gateway.api.openai.json_types import Extra
from outrider.gateway.api.responses import events as event_types
from outrider.gateway.api.responses.json_types import (
    Echo,
    IncompleteDetails,
    InputDetails,
    ItemStatus,
    OutputDetails,
    OutputItem,
    Response,
    ResponseError,
    ResponseUsage,
    Status,
)
from outrider.gateway.api.responses.output import Output
from outrider.gateway.stream.reassembly import join, split
from outrider.gateway.tool_calls.answer_reader import AnswerReader
from outrider.mesh.errors import Cancelled, InvalidRequest, OutriderError
from outrider.wire.frames import Frame, Usage

_ENDS: dict[str, type[event_types.Completed] | type[event_types.Incomplete]] = {
    "completed": event_types.Completed,
    "incomplete": event_types.Incomplete,
}


class ResponseBuilder:
    """Builds one response, frame by frame.

    ``request`` is the request's id. ``reader`` finds the calls in its answer; None if it may not call functions.
    ``created`` is in seconds since 1970. ``ignored`` names the parameters without effect. ``namespaces`` and ``seal``
    are as in `Output`.
    """

    def __init__(
        self,
        echo: Echo,
        request: str,
        *,
        reader: AnswerReader | None,
        model: str,
        seed: int,
        created: int,
        return_tokens: bool,
        ignored: tuple[str, ...] = (),
        namespaces: Mapping[str, str] | None = None,
        seal: Callable[[str], str] | None = None,
    ) -> None:
        self._ignored = ignored or UNSET
        self._echo, self._request = echo, request
        self._output = Output(request, reader, namespaces, seal)
        self._model, self._seed, self._created, self._return_tokens = model, seed, created, return_tokens
        self._frames: list[Frame] = []
        self._failure: OutriderError | None = None
        self._next = 0

    def begin(self) -> list[event_types.Event]:
        """The events before the first frame."""
        response = self._response("in_progress", [])
        return self._numbered([event_types.Created(response=response), event_types.InProgress(response=response)])

    def take(self, frame: Frame) -> list[event_types.Event]:
        """The events of ``frame``."""
        self._frames.append(frame)
        has_extra = frame.drafts is not None or (self._return_tokens and bool(frame.tokens))
        told = extra(frame, self._seed, self._return_tokens) if has_extra else UNSET
        thought, answer = split(frame, frame.thought) if frame.thought else (None, frame)
        text = "" if thought is None else "".join(thought.texts)
        events = [*self._output.take(answer, told, text)]
        if frame.finish is not None:
            events += [*self._output.end(self._item_status), _ENDS[self._status](response=self.response())]
        return self._numbered(events)

    def fail(self, error: OutriderError) -> list[event_types.Event]:
        """The event of a failure that the frames report, and that all readers therefore get."""
        self._failure = error
        return self._numbered([event_types.Failed(response=self.response())])

    def interrupt(self, error: OutriderError) -> list[event_types.Event]:
        """The events of a failure that other readers may not get; they have the number of the event before them.

        Some clients know the former alone, and others, such as Codex, the latter, which holds no output.
        """
        code = getattr(error, "reason", None) or error.type
        response = msgspec.structs.replace(self._response("failed", []), error=_error(error))
        number = max(0, self._next - 1)
        return [
            event_types.Failure(sequence_number=number, message=error.message, code=code, param=error.param),
            event_types.Failed(sequence_number=number, response=response),
        ]

    @property
    def over(self) -> bool:
        """Whether the response has ended."""
        return self._failure is not None or self._last is not None

    @property
    def whole(self) -> bool:
        """Whether the response has ended without a failure."""
        return self._failure is None and self._last is not None

    def response(self) -> Response:
        """The response so far."""
        return self._response(self._status, self._output.items(self._item_status))

    @property
    def _last(self) -> Frame | None:
        return self._frames[-1] if self._frames and self._frames[-1].finish is not None else None

    @property
    def _status(self) -> Status:
        if self._failure is not None:
            return "cancelled" if isinstance(self._failure, Cancelled) else "failed"
        if self._last is None:
            return "in_progress" if self._frames else "queued"
        return "completed" if self._last.finish == "stop" else "incomplete"

    def _numbered(self, events: Sequence[event_types.Event]) -> list[event_types.Event]:
        for event in events:
            event.sequence_number = self._next
            self._next += 1
        return list(events)

    @property
    def _item_status(self) -> ItemStatus:
        status = self._status
        return status if status in ("in_progress", "completed") else "incomplete"

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
            incomplete_details=self._incomplete_details if status == "incomplete" else None,
            usage=_usage(last.usage) if last is not None and last.usage is not None else None,
            outrider=self._extra(),
        )

    @property
    def _incomplete_details(self) -> IncompleteDetails:
        filtered = self._last is not None and self._last.finish == "content_filter"
        return IncompleteDetails("content_filter" if filtered else "max_output_tokens")

    def _extra(self) -> Extra | msgspec.UnsetType:
        if self._last is None:
            return Extra(ignored=self._ignored) if self._ignored else UNSET
        whole = extra(join(self._frames), self._seed, self._return_tokens)
        whole.ignored = self._ignored
        return whole


def _error(failure: OutriderError | None) -> ResponseError | None:
    if failure is None or isinstance(failure, Cancelled):
        return None
    return ResponseError("invalid_prompt" if isinstance(failure, InvalidRequest) else "server_error", failure.message)


def _usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        usage.prompt_tokens,
        InputDetails(usage.cached_tokens),
        usage.completion_tokens,
        OutputDetails(*usage.told_guesses, usage.reasoning_tokens),
        usage.prompt_tokens + usage.completion_tokens,
    )
