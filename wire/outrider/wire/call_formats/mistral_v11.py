"""The format of Mistral's models since version 11 of their tokenizer, such as Mistral Small 3.2."""

from __future__ import annotations

from outrider.wire.call_formats.call_format import CallFormat

_HEADS = ("[TOOL_CALLS]$NAME[ARGS]", "[TOOL_CALLS]$NAME[CALL_ID]$ID[ARGS]")

MISTRAL_V11 = CallFormat(
    signs=("[TOOL_CALLS]", "[ARGS]"),
    head=_HEADS,
    later=_HEADS,
    trigger="[TOOL_CALLS]",
    marks=("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
)
