"""The format of NousResearch's Hermes models (https://github.com/NousResearch/Hermes-Function-Calling).

Qwen 2.5 and 3, Granite 4 and many others write it, too.
"""

from __future__ import annotations

from outrider.wire.call_formats.call_format import CallFormat

_CALL = '<tool_call>\n{"name": "$NAME", "arguments": '

HERMES = CallFormat(
    signs=("<tool_call>", '"arguments": '),
    head=(_CALL,),
    later=("\n" + _CALL,),
    tail=("}\n</tool_call>",),
    trigger="<tool_call>",
    marks=("<tool_call>", "</tool_call>"),
)
