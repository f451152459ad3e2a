"""Makes the blocks of a message of a chat's answer, whole or in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from msgspec import UNSET
from outrider.gateway.api.anthropic.json_types import (
    Block,
    BlockChange,
    BlockDelta,
    BlockStart,
    BlockStop,
    End,
    InputChange,
    MessageUsage,
    SignatureChange,
    StopReason,
    TextBlock,
    TextChange,
    ThinkingBlock,
    ThinkingChange,
    ToolUseBlock,
)
from outrider.gateway.api.openai.json_types import AssistantMessage, Delta, Finish
from outrider.gateway.api.schema.tools import ToolCall
from outrider.wire.frames import Frame

_REASONS: dict[Finish, StopReason] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
BlockEvent = BlockStart | BlockChange | BlockStop


class Thoughts(msgspec.Struct, frozen=True):
    """How thoughts are shown: ``seal`` makes their signatures, and their text may be ``omitted``."""

    seal: Callable[[str], str]
    omitted: bool = False

    def block(self, thought: str) -> ThinkingBlock:
        """The block of a whole thought."""
        return ThinkingBlock("" if self.omitted else thought, self.seal(thought))


def blocks(message: AssistantMessage, thoughts: Thoughts, thought: str = "") -> list[Block]:
    """The blocks of a whole answer; ``thought`` is what the model thought before it."""
    made: list[Block] = [thoughts.block(thought)] if thought else []
    made += [TextBlock(message.content)] if message.content else []
    calls = [] if message.tool_calls is UNSET else message.tool_calls
    return [*made, *map(_call, calls)]


class BlockEvents:
    """The events of the blocks of one answer, chunk by chunk."""

    def __init__(self, thoughts: Thoughts) -> None:
        self._thoughts, self._thought = thoughts, ""
        self._index = -1
        self._open: type[Block] | None = None

    def take(self, delta: Delta, thought: str = "") -> Iterator[BlockEvent]:
        """The events of ``delta``; ``thought`` is what the chunk adds to the thought before the answer."""
        if thought:
            yield from self._begin(ThinkingBlock("", ""))
            self._thought += thought
            if not self._thoughts.omitted:
                yield self._change(ThinkingChange(thought))
        if delta.content:
            yield from self._begin(TextBlock(""))
            yield self._change(TextChange(delta.content))
        for call in [] if delta.tool_calls is UNSET else delta.tool_calls:
            if call.function.name is not UNSET:
                yield from self.end()
                yield from self._begin(_call(call, begun=True))
            if call.function.arguments:
                yield self._change(InputChange(call.function.arguments))

    def end(self) -> Iterator[BlockEvent]:
        """The events of the end of the open block, if there is one."""
        if self._open is ThinkingBlock:
            yield self._change(SignatureChange(self._thoughts.seal(self._thought)))
        if self._open is not None:
            yield BlockStop(self._index)
            self._open = None

    def _begin(self, block: Block) -> Iterator[BlockEvent]:
        if self._open is type(block):
            return
        yield from self.end()
        self._index += 1
        self._open = type(block)
        yield BlockStart(self._index, block)

    def _change(self, delta: BlockDelta) -> BlockChange:
        return BlockChange(self._index, delta)


def end(finish: Finish | None, frame: Frame) -> End:
    """Why a chat with this ``finish`` ended, whose last frame is ``frame``."""
    reason = _REASONS[finish or "stop"]
    if reason == "end_turn" and frame.stop is not None:
        return End("stop_sequence", frame.stop)
    return End(reason, None)


def usage(frame: Frame) -> MessageUsage:
    """The usage in the last ``frame``."""
    used = frame.usage
    if used is None:
        return MessageUsage(0, 0)
    return MessageUsage(used.prompt_tokens - used.cached_tokens, used.completion_tokens, used.cached_tokens)


def _call(call: ToolCall, *, begun: bool = False) -> ToolUseBlock:
    """The block of a call; one that has just ``begun``, or that was cut off, has an empty ``input``."""
    name = "" if call.function.name is UNSET else call.function.name
    id_ = "" if call.id is UNSET else call.id.replace("call_", "toolu_", 1)
    arguments = {}
    if call.function.arguments.strip() and not begun:
        try:
            arguments = msgspec.json.decode(call.function.arguments, type=dict)
        except msgspec.DecodeError:
            arguments = {}
    return ToolUseBlock(id_, name, arguments)
