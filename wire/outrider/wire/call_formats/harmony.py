"""The format of gpt-oss (https://github.com/openai/harmony): a call is a message to a function, and ends the answer.

A model writes the recipient in the channel, and the template of a chat's history before it.
"""

from __future__ import annotations

from outrider.wire.call_formats.call_format import CallFormat

HARMONY = CallFormat(
    signs=("<|channel|>", "to=", "functions."),
    head=(
        "<|channel|>commentary to=functions.$NAME <|constrain|>json<|message|>",
        " to=functions.$NAME<|channel|>commentary json<|message|>",
    ),
    trigger=" to=functions.",
    most=1,
    marks=("<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|end|>"),
    turns=("<|channel|>analysis<|message|>", "<|channel|>commentary<|message|>", "<|channel|>final<|message|>"),
    between_turns=("<|end|>", "<|start|>assistant"),
)
