"""One chat request of a load test."""

from __future__ import annotations

from typing import Any

import msgspec


class ChatRequest(msgspec.Struct, frozen=True):
    """A chat request of one ``kind``.

    Attributes:
        kind: workload of the request.
        text: the user's only message.
        max_tokens: most tokens of the answer; most answers end earlier.
        schema: JSON Schema of the answer; None without one.
        old: the text that the answer is to change; empty for other requests.
        prediction: text that the answer is expected to be; empty without one.
    """

    kind: str
    text: str
    max_tokens: int
    schema: dict[str, Any] | None = None
    temperature: float = 0.0
    seed: int = 0
    old: str = ""
    prediction: str = ""

    def body(self, speculation: Any) -> dict[str, Any]:
        """The body of ``POST /v1/chat/completions``."""
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": self.text}],
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            "speculation": speculation,
        }
        if self.schema is not None:
            form = {"name": "answer", "schema": self.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        if self.prediction:
            body["prediction"] = {"type": "content", "content": self.prediction}
        return body
