"""The format of Mistral's models before version 11 of their tokenizer (https://docs.mistral.ai): a JSON array.

The template of a chat's history adds an id to each call of the array. Some tokenizers put a blank before it.
"""

from __future__ import annotations

from outrider.wire.call_formats.call_format import CallFormat

_CALL = '{"name": "$NAME", "arguments": '

MISTRAL = CallFormat(
    signs=("[TOOL_CALLS]",),
    head=(f"[TOOL_CALLS] [{_CALL}", f"[TOOL_CALLS][{_CALL}"),
    later=(f", {_CALL}",),
    tail=("}", ', "id": "$ID"}'),
    end="]",
    trigger="[TOOL_CALLS]",
    marks=("[TOOL_CALLS]",),
)
