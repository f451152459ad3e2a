"""The format of Llama 3.1 and later (https://github.com/meta-llama/llama-models), whose template takes one call."""

from __future__ import annotations

from outrider.wire.call_formats.call_format import CallFormat

LLAMA3 = CallFormat(
    signs=('"parameters": ', '"name": '),
    head=('{"name": "$NAME", "parameters": ',),
    tail=("}",),
    trigger='{"name": ',
    anywhere=False,
    most=1,
)
