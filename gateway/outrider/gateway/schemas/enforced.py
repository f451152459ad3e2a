"""What of a client's JSON Schema is enforced."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from outrider.gateway.schemas.document import Document, MalformedSchema
from outrider.gateway.schemas.rewriting import Rewriter


class Enforced(msgspec.Struct, frozen=True):
    """A JSON Schema for the compiler, as text, and JSON pointers to the keywords that are not enforced.

    Every value of the client's schema fits ``schema``. If ``ignored`` is empty, no other value fits it.
    """

    schema: str
    ignored: tuple[str, ...]


def enforced(schema: Any) -> Enforced:
    """What of ``schema`` is enforced; raises `MalformedSchema` if it is malformed or no value fits it."""
    rewriter = Rewriter(Document(schema))
    try:
        rewritten = rewriter.run()
    except RecursionError:
        raise MalformedSchema("", "nests too deeply") from None
    if rewritten is False:
        raise MalformedSchema("", "is a schema that no value fits")
    text = json.dumps({} if rewritten is True else rewritten, ensure_ascii=False, separators=(",", ":"))
    return Enforced(text, tuple(rewriter.ignored))
