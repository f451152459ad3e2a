"""Converts the turns of Anthropic's Messages API to messages of a chat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from outrider.gateway.api.schema.ignored import note_part
from outrider.gateway.api.schema.parameters import convert
from outrider.gateway.api.schema.prompts import MOST_PARTS, require_few_messages, require_text
from outrider.gateway.api.schema.thoughts import Seal
from outrider.mesh.errors import InvalidRequest

ChatMessage = dict[str, Any]


class Text(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Text."""

    text: str


class ToolReference(msgspec.Struct, frozen=True, tag_field="type", tag="tool_reference"):
    """A tool that a search has found: from here on it is offered, though it is deferred."""

    tool_name: str

    @property
    def text(self) -> str:
        """What the model reads."""
        return f"The tool {self.tool_name} is there."


class ToolName(msgspec.Struct, frozen=True, tag_field="type", tag="tool_reference"):
    """Names one of ``tools``."""

    name: str


class ToolAddition(msgspec.Struct, frozen=True, tag_field="type", tag="tool_addition"):
    """A tool is offered from here on."""

    tool: ToolName


class ToolRemoval(msgspec.Struct, frozen=True, tag_field="type", tag="tool_removal"):
    """A tool is not offered any more."""

    tool: ToolName


class ToolResult(msgspec.Struct, frozen=True, tag_field="type", tag="tool_result"):
    """The result of a call."""

    tool_use_id: str
    content: str | list[Text | ToolReference] | None = None
    is_error: bool | None = None


class Thinking(msgspec.Struct, frozen=True, tag_field="type", tag="thinking"):
    """A thought of an earlier answer; without text it is in the ``signature`` alone."""

    thinking: str
    signature: str = ""


class RedactedThinking(msgspec.Struct, frozen=True, tag_field="type", tag="redacted_thinking"):
    """A thought that is sealed."""

    data: str


class ToolUse(msgspec.Struct, frozen=True, tag_field="type", tag="tool_use"):
    """A call of an earlier answer."""

    id: str
    name: str
    input: dict[str, Any]


_Texts = Annotated[
    str | Annotated[list[Text], Meta(max_length=MOST_PARTS)],
    Meta(description="a string or an array of text blocks (no images, no documents)"),
]
_UserContent = Annotated[
    str | Annotated[list[Text | ToolResult], Meta(max_length=MOST_PARTS)],
    Meta(description="a string or an array of blocks of text and tool_result (no images, no documents)"),
]
_AssistantContent = Annotated[
    str | Annotated[list[Text | Thinking | RedactedThinking | ToolUse], Meta(max_length=MOST_PARTS)],
    Meta(description="a string or an array of blocks of text, thinking, redacted_thinking and tool_use"),
]
_SystemContent = Annotated[
    str | Annotated[list[Text | ToolAddition | ToolRemoval], Meta(max_length=MOST_PARTS)],
    Meta(description="a string or an array of blocks of text, tool_addition and tool_removal"),
]
_CONTENTS = {"user": _UserContent, "assistant": _AssistantContent, "system": _SystemContent}
SYSTEM = _Texts
"""The type of ``system``."""
_ERROR = "Error: "


class Conversation:
    """The messages of a chat, made turn by turn.

    Consecutive turns of one role become one. A turn of the system before the first answer goes to the system's message,
    which stands first; a later one becomes text of the user, since many templates take no other. Sealed thoughts are
    those of ``tenant``; ``ignored`` is as in `note_part`.

    Attributes:
        changes: Tools that turns name, and whether they are offered since.
    """

    def __init__(self, system: str, seal: Seal, tenant: str, ignored: list[str] | None) -> None:
        self._system = [system] if system else []
        self._seal, self._tenant, self._ignored = seal, tenant, ignored
        self._messages: list[ChatMessage] = []
        self.changes: dict[str, bool] = {}

    @property
    def messages(self) -> list[ChatMessage]:
        """All messages so far."""
        lead = [{"role": "system", "content": "\n\n".join(self._system)}] if self._system else []
        return lead + self._messages

    def add(self, raw: dict[str, Any], name: str) -> None:
        """Adds the turn ``raw``; raises `InvalidRequest`, which calls the turn ``name``."""
        role = raw.get("role")
        if not isinstance(role, str) or role not in _CONTENTS:
            raise InvalidRequest(f"{name}.role must be user, assistant or system", param=f"{name}.role")
        require_text(raw.get("content"), f"{name}.content")
        for place, block in enumerate(raw["content"] if isinstance(raw.get("content"), list) else ()):
            require_text(block.get("content") if isinstance(block, dict) else None, f"{name}.content[{place}].content")
        content = convert(f"{name}.content", raw.get("content"), _CONTENTS[role])
        blocks = [Text(content)] if isinstance(content, str) else content
        if role == "assistant":
            self._add_answer(blocks, f"{name}.content")
        elif role == "system":
            self._add_system(blocks)
        else:
            self._add_user(blocks)

    def _add_system(self, blocks: list[Text | ToolAddition | ToolRemoval]) -> None:
        for block in blocks:
            if not isinstance(block, Text):
                self.changes[block.tool.name] = isinstance(block, ToolAddition)
        texts: list[Text | ToolResult] = [block for block in blocks if isinstance(block, Text)]
        if any(message["role"] == "assistant" for message in self._messages):
            self._add_user(texts)
        elif texts:
            self._system.append(joined(texts))

    def _add_user(self, blocks: list[Text | ToolResult]) -> None:
        """Adds results of calls, which follow the calls at once, and then text."""
        for block in blocks:
            if isinstance(block, ToolResult):
                content = block.content or ""
                found = (
                    [] if isinstance(content, str) else [each for each in content if isinstance(each, ToolReference)]
                )
                self.changes |= {each.tool_name: True for each in found}
                text = (_ERROR if block.is_error else "") + joined(content)
                self._messages.append({"role": "tool", "tool_call_id": block.tool_use_id, "content": text})
        texts = [block for block in blocks if isinstance(block, Text)]
        if not texts:
            return
        if (last := self._last("user")) is not None:
            last["content"] += f"\n\n{joined(texts)}"
        else:
            self._messages.append({"role": "user", "content": joined(texts)})

    def _add_answer(self, blocks: list[Text | Thinking | RedactedThinking | ToolUse], name: str) -> None:
        text = "".join(block.text for block in blocks if isinstance(block, Text))
        thought = "".join(self._thought(block, f"{name}[{place}]") for place, block in enumerate(blocks))
        calls = [_call(block) for block in blocks if isinstance(block, ToolUse)]
        if (message := self._last("assistant")) is None:
            message = {"role": "assistant", "content": ""}
            self._messages.append(message)
        message["content"] += text
        if thought:
            message["reasoning_content"] = message.get("reasoning_content", "") + thought
        if calls:
            message["tool_calls"] = message.get("tool_calls", []) + calls

    def _thought(self, block: Text | Thinking | RedactedThinking | ToolUse, name: str) -> str:
        """The thought in ``block``; empty, and noted, if only another server can read it."""
        if isinstance(block, Thinking) and not block.thinking:
            return self._opened(block.signature, f"{name}.signature")
        if isinstance(block, RedactedThinking):
            return self._opened(block.data, f"{name}.data")
        return block.thinking if isinstance(block, Thinking) else ""

    def _opened(self, sealed: str, name: str) -> str:
        thought = self._seal.open(sealed, self._tenant)
        if thought is None:
            note_part(name, "", self._ignored)
        return thought or ""

    def _last(self, role: str) -> ChatMessage | None:
        """The last message, if it is one of ``role``."""
        return self._messages[-1] if self._messages and self._messages[-1]["role"] == role else None


def conversation(
    system: str | list[Text], turns: list[dict[str, Any]], seal: Seal, tenant: str, ignored: list[str] | None
) -> Conversation:
    """The chat in which ``turns`` were said; raises `InvalidRequest`."""
    require_few_messages(turns, "messages")
    made = Conversation(joined(system), seal, tenant, ignored)
    for place, turn in enumerate(turns):
        made.add(turn, f"messages[{place}]")
    if turns[-1]["role"] == "assistant":
        name = f"messages[{len(turns) - 1}]"
        raise InvalidRequest(f"{name} is the assistant's: the last one must be the user's, to be answered", param=name)
    return made


def joined(texts: str | Sequence[Text | ToolReference | ToolResult]) -> str:
    """The text of ``texts``; results of calls have none of their own."""
    if isinstance(texts, str):
        return texts
    return "\n\n".join(block.text for block in texts if not isinstance(block, ToolResult))


def _call(block: ToolUse) -> dict[str, Any]:
    arguments = msgspec.json.encode(block.input).decode()
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": arguments}}
