"""Functions and classes to be written from a request."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator

from outrider.loadtest.chats.asked import Asked
from outrider.loadtest.chats.library import Fresh, Piece, pieces

_DOC = 60, 700
_TOKENS = 256
_FRAMES = (
    "Write {what}. This is what it should do:\n\n{doc}\n\nUse only the standard library.",
    "I need {what} with this documentation:\n\n{doc}\n\nPlease implement it.",
    "Implement {what} in Python 3. {doc}\n\nAnswer with code only.",
    "{doc}\n\nThat is the description of {what}. Write the code, and one line that shows how to call it.",
    "Could you write {what} for me? The specification:\n\n{doc}",
)


def codes(draw: random.Random) -> Iterator[Asked]:
    """Requests for code, each by the documentation of another function or class."""
    least, most = _DOC
    fresh = Fresh()
    for piece in pieces("code", draw):
        if least <= len(piece.doc) <= most and fresh(piece.doc):
            text = draw.choice(_FRAMES).format(what=_what(piece), doc=piece.doc)
            yield Asked("code", text, _TOKENS)


def _what(piece: Piece) -> str:
    node, name = piece.node, piece.node.name.strip("_")
    if isinstance(node, ast.ClassDef):
        methods = [each.name for each in node.body if isinstance(each, ast.FunctionDef) and each.name[0] != "_"]
        told = ", ".join(f"`{method}`" for method in methods[:4])
        return f"a Python class `{name}`" + (f" with the methods {told}" if told else "")
    arguments = ast.unparse(node.args).removeprefix("self").removeprefix(", ")
    return f"a Python function `{name}({arguments})`"
