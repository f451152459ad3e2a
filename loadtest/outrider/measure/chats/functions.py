"""Requests to write functions and classes."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator

from outrider.measure.chats.chat_request import ChatRequest
from outrider.measure.chats.library import NoveltyFilter, Piece, pieces

_DOC = 60, 700
_TOKENS = 256
_FRAMES = (
    "Write {what}. This is what it should do:\n\n{doc}\n\nUse only the standard library.",
    "I need {what} with this documentation:\n\n{doc}\n\nPlease implement it.",
    "Implement {what} in Python 3. {doc}\n\nAnswer with code only.",
    "{doc}\n\nThat is the description of {what}. Write the code, and one line that shows how to call it.",
    "Could you write {what} for me? The specification:\n\n{doc}",
)


def functions(draw: random.Random) -> Iterator[ChatRequest]:
    """Requests for code, each with the documentation of a different function or class."""
    least, most = _DOC
    is_new = NoveltyFilter()
    for piece in pieces("code", draw):
        if least <= len(piece.doc) <= most and is_new(piece.doc):
            text = draw.choice(_FRAMES).format(what=_what(piece), doc=piece.doc)
            yield ChatRequest("code", text, _TOKENS)


def _what(piece: Piece) -> str:
    node, name = piece.node, piece.node.name.strip("_")
    if isinstance(node, ast.ClassDef):
        methods = [item.name for item in node.body if isinstance(item, ast.FunctionDef) and item.name[0] != "_"]
        names = ", ".join(f"`{method}`" for method in methods[:4])
        return f"a Python class `{name}`" + (f" with the methods {names}" if names else "")
    arguments = ast.unparse(node.args).removeprefix("self").removeprefix(", ")
    return f"a Python function `{name}({arguments})`"
