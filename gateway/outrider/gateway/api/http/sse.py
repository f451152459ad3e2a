"""Server-sent events (HTML standard, 9.2), written so that careless clients read them correctly, too."""

from __future__ import annotations

import msgspec

_LINE_ENDS = tuple((end.encode(), b"\\u%04x" % ord(end)) for end in "\x85\u2028\u2029")
"""Characters that end a line for some clients, though not in the standard."""
_encode = msgspec.json.Encoder().encode


def event(value: msgspec.Struct, id_: str) -> bytes:
    """``value`` as one event of JSON data; ``id_`` is its position, which a client sends when it resumes."""
    return b"data: %b\nid: %b\n\n" % (_data(value), id_.encode())


def typed_event(value: msgspec.Struct) -> bytes:
    """``value`` as one event of JSON data; the value's tag is the event's type."""
    return b"event: %b\ndata: %b\n\n" % (str(value.__struct_config__.tag).encode(), _data(value))


def done(id_: str) -> bytes:
    """The event that ends a stream."""
    return b"data: [DONE]\nid: %b\n\n" % id_.encode()


def with_retry(data: bytes, milliseconds: int) -> bytes:
    """``data``, one event, with the time that the client is to wait before it reconnects."""
    return b"%bretry: %d\n\n" % (data[:-1], milliseconds)


def _data(value: msgspec.Struct) -> bytes:
    data = _encode(value)
    for raw, escaped in _LINE_ENDS:
        if raw in data:
            data = data.replace(raw, escaped)
    return data
