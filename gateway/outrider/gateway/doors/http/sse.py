"""Server-sent events, as the HTML standard frames them and as careless clients read them."""

from __future__ import annotations

import msgspec

_LINE_ENDS = tuple((end.encode(), b"\\u%04x" % ord(end)) for end in "\x85\u2028\u2029")
"""Characters that some clients take for the end of a line, though the standard does not."""
_encode = msgspec.json.Encoder().encode


def event(value: msgspec.Struct, id_: str) -> bytes:
    """``value`` as one event of JSON data; ``id_`` is what a client that comes back names as the last it had."""
    return b"data: %b\nid: %b\n\n" % (_data(value), id_.encode())


def typed(value: msgspec.Struct) -> bytes:
    """``value`` as one event of JSON data that is called by the value's tag."""
    return b"event: %b\ndata: %b\n\n" % (str(value.__struct_config__.tag).encode(), _data(value))


def done(id_: str) -> bytes:
    """The event that ends a stream."""
    return b"data: [DONE]\nid: %b\n\n" % id_.encode()


def with_retry(data: bytes, milliseconds: int) -> bytes:
    """``data``, one event, that also tells the client how long to wait before it comes back."""
    return b"%bretry: %d\n\n" % (data[:-1], milliseconds)


def _data(value: msgspec.Struct) -> bytes:
    data = _encode(value)
    for raw, escaped in _LINE_ENDS:
        if raw in data:
            data = data.replace(raw, escaped)
    return data
