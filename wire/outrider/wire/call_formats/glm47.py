"""The format of GLM 4.7 and 5 (https://github.com/zai-org/GLM-4.5): that of GLM 4.5 without lines."""

from __future__ import annotations

from outrider.wire.call_formats.call_format import CallFormat, Tags
from outrider.wire.call_formats.glm45 import GLM45

_CALL = "<tool_call>$NAME"

GLM47 = CallFormat(
    signs=("<tool_call>", "<arg_key>", "</arg_key><arg_value>"),
    head=(_CALL,),
    later=(_CALL, f"\n{_CALL}"),
    tail=GLM45.tail,
    trigger=GLM45.trigger,
    arguments=Tags("<arg_key>", "</arg_key><arg_value>", "</arg_value>"),
    marks=GLM45.marks,
)
