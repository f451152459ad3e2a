"""Requests to change a function: the prompt holds the function, the answer is the whole changed function."""

from __future__ import annotations

import ast
import keyword
import random
from collections import Counter
from collections.abc import Callable, Iterator

from outrider.measure.chats.chat_request import ChatRequest
from outrider.measure.chats.library import NoveltyFilter, Piece, pieces

_LENGTH = 250, 1000
_TOKENS = 384
_PREFIXES = ("current", "given", "local", "found", "next", "raw", "inner", "chosen")
_SUFFIXES = ("item", "value", "entry", "part", "source", "result")
_SWITCHES = ("verbose", "dry_run", "strict", "quiet", "debug", "trace", "force", "safe")
_FRAMES = (
    "{change} Answer with the whole changed function and nothing else.\n\n```python\n{source}```",
    "Here is a function:\n\n```python\n{source}```\n\n{change} Give me the complete new version, code only.",
    "```python\n{source}```\n\n{change} Leave everything else as it is, and show the full function.",
    "Please edit this code. {change} Reply with the entire function in one code block.\n\n```python\n{source}```",
)

Function = ast.FunctionDef | ast.AsyncFunctionDef
Change = Callable[[Function, random.Random], str]
"""Makes a sentence that says what to change; empty if the change does not fit the function."""


def edits(draw: random.Random) -> Iterator[ChatRequest]:
    """Edits, each of a different function."""
    least, most = _LENGTH
    is_new = NoveltyFilter()
    for piece in pieces("edit", draw):
        if least <= len(piece.source) <= most and isinstance(piece.node, Function) and is_new(piece.source):
            text = draw.choice(_FRAMES).format(change=_change(piece, piece.node, draw), source=piece.source)
            yield ChatRequest("edit", text, _TOKENS, old=piece.source)


def _change(piece: Piece, node: Function, draw: random.Random) -> str:
    sentences = [sentence for change in _CHANGES if (sentence := change(node, draw))]
    return draw.choice(sentences) if sentences else f"Rename the function to `{draw.choice(_PREFIXES)}_{node.name}`."


def _rename(node: Function, draw: random.Random) -> str:
    names = Counter(each.id for each in ast.walk(node) if isinstance(each, ast.Name))
    assigned = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    often = [name for name in sorted(assigned) if names[name] > 1 and not keyword.iskeyword(name)]
    new = f"{draw.choice(_PREFIXES)}_{draw.choice(_SUFFIXES)}"
    return f"Rename the variable `{draw.choice(often)}` to `{new}` everywhere." if often else ""


def _annotate(node: Function, draw: random.Random) -> str:
    bare = any(each.annotation is None for each in node.args.args if each.arg not in ("self", "cls"))
    return "Add type annotations to all parameters and to the return value." if bare else ""


def _document(node: Function, draw: random.Random) -> str:
    if ast.get_docstring(node):
        return draw.choice(("Remove the docstring.", "Replace the docstring by a single short sentence."))
    return draw.choice(("Add a docstring of one sentence.", "Add a docstring that describes each parameter."))


def _default(node: Function, draw: random.Random) -> str:
    defaults = dict(zip([each.arg for each in node.args.args][::-1], node.args.defaults[::-1], strict=False))
    if not defaults:
        return ""
    name = draw.choice(sorted(defaults))
    return f"Change the default of `{name}` from `{ast.unparse(defaults[name])}` to `{draw.randint(2, 99)}`."


def _parameter(node: Function, draw: random.Random) -> str:
    switch = draw.choice(_SWITCHES)
    return f"Add a keyword-only parameter `{switch}=False`; when it is true, print the function's name at the start."


def _guard(node: Function, draw: random.Random) -> str:
    names = [each.arg for each in node.args.args if each.arg not in ("self", "cls")]
    return f"Raise a ValueError at the beginning if `{draw.choice(names)}` is None." if names else ""


def _name(node: Function, draw: random.Random) -> str:
    return f"Rename the function to `{draw.choice(_PREFIXES)}_{node.name.strip('_')}`."


def _log(node: Function, draw: random.Random) -> str:
    return "Call `logger.debug` with a fitting message before every return." if _has(node, ast.Return) else ""


def _comment(node: Function, draw: random.Random) -> str:
    return "Put a short comment above every `if` that says what is tested." if _has(node, ast.If) else ""


def _has(node: Function, kind: type[ast.AST]) -> bool:
    return any(isinstance(each, kind) for each in ast.walk(node))


_CHANGES: tuple[Change, ...] = (
    _rename,
    _annotate,
    _document,
    _default,
    _parameter,
    _guard,
    _name,
    _log,
    _comment,
)
