"""Finds special tokens that a context-free grammar names."""

from __future__ import annotations

import re

from outrider.engine.requests.grammars import is_lark

_PARTS = re.compile(
    r"""
      (?:\#|//)[^\n]*          # a comment
    | "(?:\\.|[^"\\])*"       # a text, also in JSON
    | /(?:\\.|[^/\\])+/       # a regular expression
    | (?P<token><[^<>\s]+>)
    """,
    re.VERBOSE | re.DOTALL,
)
"""The parts of llguidance's Lark in which a ``<`` may stand
(https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md).
"""


def named_token(grammar: str) -> str | None:
    """The first special token that ``grammar`` names, by its name or its id, as it is written there; None without."""
    if not is_lark(grammar):  # GBNF names no tokens
        return None
    return next((part["token"] for part in _PARTS.finditer(grammar) if part["token"]), None)
