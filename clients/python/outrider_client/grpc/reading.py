"""Reads a stream over gRPC across all its connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outrider_client.errors import RETRYABLE, GatewayError
from outrider_client.grpc.answers import answer
from outrider_client.grpc.methods import METHODS
from outrider_client.types import Chunk

_LEAST = -(1 << 31)


class GrpcReading:
    """The state of one stream across all its connections, with the next index of each choice."""

    def __init__(self, request: Any, request_id: str = "", from_index: Sequence[int] = ()) -> None:
        self._request, self.id = request, request_id
        self.chat = request is not None and bool(request.messages_json)
        self.next = list(from_index) or [_LEAST] * (request.n or 1 if request is not None else 1)
        self._has_begun = request is None
        self.done = False

    @property
    def next_call(self) -> tuple[str, Any]:
        """The method that continues the stream, or begins it, and its request."""
        if not self.id:
            return "Generate", self._request
        return "Resume", METHODS["Resume"].request(request_id=self.id, from_index=self.next)

    def begins_again(self, method: str, error: GatewayError | None) -> bool:
        """Whether to begin again at once after ``method`` ended with ``error``: no message of the stream has arrived.

        An error of a gateway ends the stream, unless the error is retryable.
        """
        self.done = error is not None and not isinstance(error, RETRYABLE) and not self._is_unknown(error)
        if error is None or self._has_begun:
            return False
        self.id = "" if method == "Generate" else self.id
        if not self._is_unknown(error):
            return False
        self.id = ""
        return True

    def _is_unknown(self, error: GatewayError) -> bool:
        """Whether no gateway knows the stream, and no message of it has arrived."""
        return error.status == 404 and bool(self.id) and not self._has_begun

    def take(self, message: Any) -> Chunk:
        """The chunk of a message."""
        self._has_begun = True
        self.next += [_LEAST] * (message.choice + 1 - len(self.next))
        self.next[message.choice] = message.first_index + len(message.tokens)
        return answer([message], chat=self.chat, whole=False)
