"""How models write function calls: tokenizers announce a model's format, gateways prompt for it and parse it."""

from __future__ import annotations

import msgspec


class CallFormat(msgspec.Struct, frozen=True):
    """The text of calls: ``first``, a name as JSON, ``middle``, arguments as JSON, ``tail``; ``later`` begins others.

    Attributes:
        trigger: the beginning of ``first``; where an answer contains it, a call follows.
        anywhere: whether text may stand before the first call; else an answer is text or calls.
        most: most calls of one answer.
        marks: parts of the text for which a vocabulary may have special tokens.
    """

    trigger: str
    first: str
    later: str
    middle: str
    tail: str
    anywhere: bool
    most: int
    marks: tuple[str, ...] = ()


FORMATS = {
    "hermes": CallFormat(
        trigger="<tool_call>",
        first='<tool_call>\n{"name": ',
        later='\n<tool_call>\n{"name": ',
        middle=', "arguments": ',
        tail="}\n</tool_call>",
        anywhere=True,
        most=16,
        marks=("<tool_call>", "</tool_call>"),
    ),
    "llama3": CallFormat(
        trigger='{"name": ',
        first='{"name": ',
        later="",
        middle=', "parameters": ',
        tail="}",
        anywhere=False,
        most=1,
    ),
}
"""Formats by name: that of NousResearch's Hermes models (https://github.com/NousResearch/Hermes-Function-Calling), also
used by Qwen's, and that of Llama 3.1 (https://github.com/meta-llama/llama-models), whose template takes one call."""

DEFAULT = "hermes"


class Mark(msgspec.Struct, frozen=True):
    """A part of a format that is one token of the vocabulary; a ``silent`` one leaves no text behind."""

    text: str
    token: int
    silent: bool


class CallStyle(msgspec.Struct, frozen=True):
    """How one model writes calls; its tokenizer announces this in its status under ``calls``."""

    name: str = DEFAULT
    marks: tuple[Mark, ...] = ()

    @property
    def format(self) -> CallFormat:
        """The named format; the default one where a tokenizer of a later version names an unknown one."""
        return FORMATS.get(self.name, FORMATS[DEFAULT])
