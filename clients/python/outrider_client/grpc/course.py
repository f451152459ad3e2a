"""One stream across all its connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outrider_client.errors import RETRYABLE, GatewayError
from outrider_client.grpc.methods import METHODS
from outrider_client.grpc.telling import answer
from outrider_client.types import Chunk

_LEAST = -(1 << 31)


class Course:
    """One stream across all its connections: where each choice stands."""

    def __init__(self, request: Any, request_id: str = "", from_index: Sequence[int] = ()) -> None:
        self._request, self.id = request, request_id
        self.chat = request is not None and bool(request.messages_json)
        self.next = list(from_index) or [_LEAST] * (request.n or 1 if request is not None else 1)
        self._heard = request is None
        self.done = False

    @property
    def ask(self) -> tuple[str, Any]:
        """The method that goes on with the stream, or begins it, and its request."""
        if not self.id:
            return "Generate", self._request
        return "Resume", METHODS["Resume"].request(request_id=self.id, from_index=self.next)

    def again(self, method: str, error: GatewayError | None) -> bool:
        """Whether to ask again at once, after ``method`` ended in ``error``: nothing of the stream was noted, or heard.

        What gateways say of a stream ends it, unless it may pass.
        """
        self.done = error is not None and not isinstance(error, RETRYABLE) and not self._lost(error)
        if error is None or self._heard:
            return False
        self.id = "" if method == "Generate" else self.id
        if not self._lost(error):
            return False
        self.id = ""
        return True

    def _lost(self, error: GatewayError) -> bool:
        """Whether the gateway died before it could note the stream, and nothing of it was heard."""
        return error.status == 404 and bool(self.id) and not self._heard

    def take(self, told: Any) -> Chunk:
        """The chunk that a message is."""
        self._heard = True
        self.next += [_LEAST] * (told.choice + 1 - len(self.next))
        self.next[told.choice] = told.first_index + len(told.tokens)
        return answer([told], chat=self.chat, whole=False)
