"""Triton's interpreter, without the half of its time in which it makes the same changes again and again."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import triton.language as tl
from triton.runtime import interpreter


@cache
def change_the_language_once() -> None:
    """Has a launch put interpreted functions in place of the language's once, not again at every call within it."""
    change, changed = interpreter._patch_lang, set[int]()

    def once(fn: Any) -> Any:
        named = {id(each) for each in fn.__globals__.values() if inspect.ismodule(each) and each in (tl, tl.core)}
        if changed and named <= changed:
            return None  # a call within a launch, which undoes everything at its end
        scope = change(fn)
        changed.update(named)
        undo = scope.restore
        scope.restore = lambda: (changed.clear(), undo())
        return scope

    interpreter._patch_lang = once
