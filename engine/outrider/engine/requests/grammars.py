"""Tells the two notations of context-free grammars apart."""

from __future__ import annotations

import re

_LARK = re.compile(r"(?m)^\s*(%llguidance\b|[!?]*start\s*(\[[^\]\n]*\]\s*)?:(?!:=))")


def is_lark(grammar: str) -> bool:
    """Whether ``grammar`` is in llguidance's Lark, and not in GBNF, whose rules have ``::=``."""
    return "::=" not in grammar or _LARK.search(grammar) is not None
