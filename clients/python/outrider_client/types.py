"""Types of a gateway's answers. Unknown fields are ignored."""

from __future__ import annotations

from typing import Any

import msgspec

from outrider_client.errors import ErrorBody


class Model(msgspec.Struct, frozen=True):
    """A served model. ``created`` is in seconds since 1970."""

    id: str
    created: int = 0
    owned_by: str = ""


class PromptDetails(msgspec.Struct, frozen=True):
    """Tokens of the prompt that were cached."""

    cached_tokens: int = 0


class CompletionDetails(msgspec.Struct, frozen=True):
    """Accepted and rejected guesses of drafters, and tokens of a thought before the answer."""

    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0
    reasoning_tokens: int = 0


class Usage(msgspec.Struct, frozen=True):
    """The cost of an answer, in tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails = PromptDetails()
    completion_tokens_details: CompletionDetails = CompletionDetails()


class Draft(msgspec.Struct, frozen=True):
    """The guesses that one step verified, as a tree.

    Node ``i`` guesses ``tokens[i]`` after the node ``parents[i]``; a node with the parent -1 guesses the answer's token
    ``first_index``. ``accepted`` lists the accepted nodes, from the top down.
    """

    first_index: int
    tokens: list[int]
    texts: list[str]
    parents: list[int]
    guessed_by: list[str]
    accepted: list[int]


class Detail(msgspec.Struct, frozen=True):
    """Outrider's extension of OpenAI's answers.

    ``return_drafts`` adds ``drafts``, ``return_tokens`` the fields before it; the other fields come at the end.
    """

    first_index: int | None = None
    tokens: list[int] = []
    texts: list[str] = []
    guessed_by: list[str] = []
    drafts: list[Draft] = []
    steps: int | None = None
    seed: int | None = None
    verifier: str | None = None
    lossy: bool = False
    choices: list[Detail] = []


class Message(msgspec.Struct, frozen=True):
    """A chat's answer; ``tool_calls`` are OpenAI's objects."""

    role: str = "assistant"
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] = []


class Delta(msgspec.Struct, frozen=True):
    """The addition of a chunk to a chat's message."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] = []


class Choice(msgspec.Struct, frozen=True):
    """One of the answers: ``text`` in completions, ``message`` in chats, ``delta`` in chunks of chats."""

    index: int = 0
    finish_reason: str | None = None
    text: str | None = None
    message: Message | None = None
    delta: Delta | None = None
    logprobs: dict[str, Any] | None = None

    @property
    def content(self) -> str:
        """The text of the choice, of its message or of its delta."""
        if self.text is not None:
            return self.text
        message = self.message or self.delta
        return (message.content if message else None) or ""


class Answer(msgspec.Struct, frozen=True):
    """A completion or a chat's answer, or a part of one as a `Chunk`."""

    id: str
    created: int
    model: str
    choices: list[Choice]
    system_fingerprint: str = ""
    usage: Usage | None = None
    outrider: Detail | None = None

    @property
    def text(self) -> str:
        """Text of the first choice; empty in a chunk without choices."""
        return self.choices[0].content if self.choices else ""


Chunk = Answer


class OutputPart(msgspec.Struct, frozen=True):
    """A part of a message; ``logprobs`` are OpenAI's objects."""

    type: str
    text: str = ""
    logprobs: list[dict[str, Any]] = []


class OutputItem(msgspec.Struct, frozen=True):
    """An item of a response: a ``message`` with ``content``, or a ``function_call`` with JSON in ``arguments``."""

    id: str
    type: str
    status: str = ""
    content: list[OutputPart] = []
    call_id: str = ""
    name: str = ""
    arguments: str = ""


class ResponseUsage(msgspec.Struct, frozen=True):
    """The cost of a response, in tokens."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: PromptDetails = PromptDetails()
    output_tokens_details: CompletionDetails = CompletionDetails()


class Response(msgspec.Struct, frozen=True):
    """A response in its present state; ``created_at`` is in seconds since 1970.

    ``status`` is ``queued``, ``in_progress``, ``completed``, ``incomplete``, ``failed`` or ``cancelled``.
    """

    id: str
    created_at: int
    model: str
    status: str
    output: list[OutputItem] = []
    error: dict[str, Any] | None = None
    incomplete_details: dict[str, Any] | None = None
    previous_response_id: str | None = None
    background: bool = False
    metadata: dict[str, str] = {}
    usage: ResponseUsage | None = None
    outrider: Detail | None = None

    @property
    def text(self) -> str:
        """All text of the response's messages."""
        return "".join(part.text for item in self.output for part in item.content)


class ResponseEvent(msgspec.Struct, frozen=True):
    """One of OpenAI's typed events; its ``type`` determines its fields."""

    type: str
    sequence_number: int
    response: Response | None = None
    output_index: int | None = None
    item: OutputItem | None = None
    delta: str = ""
    arguments: str = ""
    outrider: Detail | None = None

    @property
    def text(self) -> str:
        """The text that the event adds; empty in other events."""
        return self.delta if self.type == "response.output_text.delta" else ""


class ModelList(msgspec.Struct, frozen=True):
    """The served models."""

    data: list[Model]


class Failure(msgspec.Struct, frozen=True):
    """The content of an event after the stream failed."""

    error: ErrorBody | None = None


def token_name(data: bytes) -> str:
    """The text of a token with these bytes; a part of a character becomes ``bytes:...``, as over HTTP."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def token_logprob(data: bytes, logprob: float | None) -> dict[str, Any]:
    """An entry for a token with these bytes in the ``logprobs`` of a chat."""
    return {"token": data.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(data)}


def logprob_entry(entry: Any, logprob: float | None) -> dict[str, Any]:
    """An entry for a token of the answer, with the likeliest tokens, in the ``logprobs`` of a chat."""
    top = [token_logprob(other.data, other.logprob) for other in entry.top]
    return {**token_logprob(entry.data, logprob), "top_logprobs": top}


def draft(tree: Any) -> Draft:
    """The guesses of one step from gRPC or NATS; ``data`` holds the bytes of each guess."""
    texts = [token_name(data) for data in tree.data]
    parents, guessed_by, accepted = list(tree.parents), list(tree.guessed_by), list(tree.accepted)
    return Draft(tree.first_index, list(tree.tokens), texts, parents, guessed_by, accepted)
