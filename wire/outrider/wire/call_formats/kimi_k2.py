"""The format of Kimi K2 (https://github.com/MoonshotAI/Kimi-K2): an id of name and number stands for the name."""

from __future__ import annotations

from outrider.wire.call_formats.call_format import CallFormat

_CALL = "<|tool_call_begin|>functions.$NAME:$ID<|tool_call_argument_begin|>"

KIMI_K2 = CallFormat(
    signs=("<|tool_calls_section_begin|>",),
    head=("<|tool_calls_section_begin|>" + _CALL,),
    later=(_CALL,),
    tail=("<|tool_call_end|>",),
    end="<|tool_calls_section_end|>",
    trigger="<|tool_calls_section_begin|>",
    marks=(
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<|tool_calls_section_end|>",
    ),
)
