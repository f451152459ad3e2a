"""The format of Qwen3-Coder (https://github.com/QwenLM/Qwen3-Coder): tags, with texts as they are."""

from __future__ import annotations

from outrider.wire.call_formats.call_format import CallFormat, Tags

_CALL = "<tool_call>\n<function=$NAME>\n"

QWEN3_CODER = CallFormat(
    signs=("<tool_call>", "<function=", "<parameter="),
    head=(_CALL,),
    later=("\n" + _CALL,),
    tail=("</function>\n</tool_call>",),
    trigger="<tool_call>",
    arguments=Tags("<parameter=", ">\n", "\n</parameter>\n"),
    marks=("<tool_call>", "</tool_call>"),
)
