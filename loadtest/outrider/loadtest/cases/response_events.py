"""Puts a response together from its typed events, and tells where they contradict each other."""

from __future__ import annotations

from typing import Any

_ENDS = ("response.completed", "response.incomplete", "response.failed")
_DONE = {
    "response.output_text.done": "text",
    "response.reasoning_text.done": "text",
    "response.function_call_arguments.done": "arguments",
}


class Fold:
    """Takes the events of one stream; ``faults`` has a line for each thing that is wrong, ``output`` the items."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.output: list[dict[str, Any]] = []
        self._next, self._open, self._id = 0, False, ""

    def take(self, event: dict[str, Any]) -> None:
        """Takes the next event."""
        kind = event["type"]
        self._expect(event["sequence_number"] == self._next, f"{kind} has the number {event['sequence_number']}")
        self._next += 1
        if "response" in event:
            self._take_response(kind, event["response"])
        elif kind == "response.output_item.added":
            self._expect(not self._open and event["output_index"] == len(self.output), "an item begins inside another")
            self._expect(event["item"]["status"] == "in_progress", "an item begins with another status")
            self._open = True
            self.output.append(event["item"])
        else:
            self._take_of_item(kind, event)

    def _take_response(self, kind: str, response: dict[str, Any]) -> None:
        self._id = self._id or response["id"]
        self._expect(response["id"] == self._id, "the response changes its id")
        if kind in _ENDS:
            self._expect(not self._open, "the response ends inside an item")
            self._expect(response["output"] == self.output, "the items of the stream are not those of the response")
            self._expect(kind == f"response.{response['status']}", f"{kind} has the status {response['status']}")
        else:
            self._expect(not self.output and self._next <= 2, f"{kind} comes late")

    def _take_of_item(self, kind: str, event: dict[str, Any]) -> None:
        self._expect(self._open and event["output_index"] == len(self.output) - 1, f"{kind} belongs to no open item")
        item = self.output[-1]
        if kind == "response.output_item.done":
            sealed = {"encrypted_content", "status"}
            told = {name: value for name, value in event["item"].items() if name not in sealed}
            same = told == {name: value for name, value in item.items() if name not in sealed}
            self._expect(same, "an item is done with another content")
            self.output[-1], self._open = event["item"], False
            return
        self._expect(event["item_id"] == item["id"], f"{kind} has the id of another item")
        if kind == "response.content_part.added":
            self._expect(event["content_index"] == len(item["content"]), "a part has another index")
            item["content"].append(event["part"])
            return
        place = item if item["type"] == "function_call" else item["content"][event["content_index"]]
        if kind == "response.content_part.done":
            self._expect(event["part"] == place, "a part is done with another content")
        elif kind in _DONE:
            name = _DONE[kind]
            self._expect(event[name] == place[name], f"{kind} has another text")
        else:
            place["arguments" if place is item else "text"] += event["delta"]
            if "logprobs" in event:
                place["logprobs"] += event["logprobs"]

    def _expect(self, holds: bool, fault: str) -> None:
        if not holds:
            self.faults.append(fault)
