"""Server-sent events, as the HTML standard frames them and as careless clients read them."""

from __future__ import annotations

import msgspec

DONE = b"data: [DONE]\n\n"

_LINE_ENDS = tuple((end.encode(), b"\\u%04x" % ord(end)) for end in "\x85\u2028\u2029")
"""Characters that some clients take for the end of a line, though the standard does not."""
_encode = msgspec.json.Encoder().encode


def event(value: msgspec.Struct) -> bytes:
    """``value`` as one event of JSON data."""
    data = _encode(value)
    for raw, escaped in _LINE_ENDS:
        if raw in data:
            data = data.replace(raw, escaped)
    return b"data: " + data + b"\n\n"
