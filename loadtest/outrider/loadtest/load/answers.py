"""Collects answers that arrive in chunks, and compares two of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Answer:
    """The part of an answer that has arrived.

    Attributes:
        choices: sequences of each choice, which only grow: tokens, characters and lists of log-probabilities.
        finish: finish reason of each choice that has ended.
        whole: whether the stream is complete.
        accepted: accepted guesses, as the gateway counts them; 0 before the end.
        rejected: rejected guesses, likewise.
    """

    choices: dict[int, dict[str, list[Any]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    finish: dict[int, str] = field(default_factory=dict)
    whole: bool = False
    accepted: int = 0
    rejected: int = 0

    def add(self, event: Mapping[str, Any]) -> None:
        """Adds an event of the stream."""
        for choice in event["choices"]:
            parts = self.choices[choice["index"]]
            parts["tokens"] += event.get("outrider", {}).get("tokens", [])
            parts["text"] += choice["text"]
            for name, values in (choice["logprobs"] or {}).items():
                parts[f"logprobs.{name}"] += values
            if choice["finish_reason"] is not None:
                self.finish[choice["index"]] = choice["finish_reason"]
        if event.get("usage"):
            details = event["usage"]["completion_tokens_details"]
            self.accepted, self.rejected = (details[f"{kind}_prediction_tokens"] for kind in ("accepted", "rejected"))
            self.whole = True

    @property
    def tokens(self) -> int:
        """Tokens over all choices."""
        return sum(len(parts["tokens"]) for parts in self.choices.values())


def agrees(answer: Answer, expected: Answer) -> bool:
    """Whether ``answer`` equals ``expected``; an answer left early has to equal its beginning."""
    if answer.whole:
        return answer.choices == expected.choices and answer.finish == expected.finish
    return all(
        values == expected.choices[index][name][: len(values)]
        for index, parts in answer.choices.items()
        for name, values in parts.items()
    ) and all(expected.finish[index] == reason for index, reason in answer.finish.items())
