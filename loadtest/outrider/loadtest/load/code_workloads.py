"""Workloads of code for speed tests; no two prompts share code.

Each prompt is used once, so that a drafter that remembers answers finds none.
"""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Callable

from outrider.loadtest.load.prompts import CHARACTERS, PromptsError, held_out, windows

_SHOWN = 0.25
_NAME = re.compile(r"[A-Za-z_]\w{3,}")


def code(piece: str) -> str:
    """Held-out code to continue."""
    return piece


def edit(piece: str) -> str:
    """Half of ``piece``, and the beginning of a copy with its most frequent name changed.

    An editor sends such prompts to apply a change to a file: most of the answer stands in the prompt.
    """
    original = windows(piece, len(piece) // 2)[0]
    counts = Counter(name for name in _NAME.findall(original) if not keyword.iskeyword(name))
    name = counts.most_common(1)[0][0] if counts else "value"
    changed = re.sub(rf"\b{name}\b", f"new_{name}", original).splitlines(keepends=True)
    shown = "".join(changed[: max(1, int(len(changed) * _SHOWN))])
    return f"{original}\n\n# The same code with new_{name} for {name}:\n\n{shown}"


WORKLOADS: dict[str, Callable[[str], str]] = {"code": code, "edit": edit}
"""Functions that make a prompt of a piece of code, by workload."""


class CodeSupply:
    """Held-out pieces, each used once.

    Args:
        start: number of the first piece; repeats of a measurement use different starts.
    """

    def __init__(self, start: int = 0) -> None:
        pieces = held_out(CHARACTERS)
        start %= len(pieces)
        self._pieces = pieces[start:] + pieces[:start]
        self._taken = 0

    def take(self, workload: str, count: int) -> list[str]:
        """``count`` prompts of ``workload``; `PromptsError` if fewer are left."""
        if self._taken + count > len(self._pieces):
            raise PromptsError(f"there are {len(self._pieces)} held-out pieces of code, too few to use each once")
        pieces = self._pieces[self._taken : self._taken + count]
        self._taken += count
        return [WORKLOADS[workload](piece) for piece in pieces]
