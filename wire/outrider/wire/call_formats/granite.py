"""The format of Granite 3 (https://github.com/ibm-granite): a mark, and a JSON array. Granite 4 writes `hermes`."""

from __future__ import annotations

from outrider.wire.call_formats.call_format import CallFormat

_CALL = '{"name": "$NAME", "arguments": '

GRANITE = CallFormat(
    signs=("<|tool_call|>",),
    head=(f"<|tool_call|>[{_CALL}",),
    later=(f", {_CALL}",),
    tail=("}",),
    end="]",
    trigger="<|tool_call|>",
    marks=("<|tool_call|>",),
)
