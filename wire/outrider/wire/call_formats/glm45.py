"""The format of GLM 4.5 and 4.6 (https://github.com/zai-org/GLM-4.5): tags around names and around values."""

from __future__ import annotations

from outrider.wire.call_formats.call_format import CallFormat, Tags

_CALL = "<tool_call>$NAME\n"

GLM45 = CallFormat(
    signs=("<tool_call>", "<arg_key>", "<arg_value>"),
    head=(_CALL,),
    later=("\n" + _CALL,),
    tail=("</tool_call>",),
    trigger="<tool_call>",
    arguments=Tags("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"),
    marks=("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
)
