"""Calls without the marks of a model's format: an answer that is nothing but JSON, which may stand in a code fence.

Models that were trained on code write calls like this, whatever their template says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from outrider.gateway.tool_calls.json_scanner import JsonScanner

_BLANKS = " \t\r\n"
_BETWEEN = {"```": "fence", ",": "between", "{": "key"}
_STEPS = {
    "between": _BETWEEN,
    "fence": _BETWEEN | {"json": "between"},
    "key": {'"name"': "colon"},
    "colon": {":": "name"},
    "comma": {",": "second key"},
    "second key": {'"arguments"': "second colon", '"parameters"': "second colon"},
    "second colon": {":": "arguments"},
    "end": {"}": "between"},
}
"""For each step, the words that may come next, each with the step after it. No word of a step begins with another."""


def head_pattern(names: Iterable[str]) -> str:
    """A regular expression, in Lark's notation, for the text of a bare call before its arguments.

    It matches all beginnings that `BareCalls` reads, and some that it does not read.
    """
    name = "|".join(re.escape(json.dumps(name)).replace("/", r"\/") for name in names)
    words = ["[\\x20\\t\\r\\n,`]*(json)?", r"\{", '"name"', ":", f"({name})", ",", '"(arguments|parameters)"', ":", ""]
    return r"[\x20\t\r\n]*".join(words)


class BareCalls:
    """Reads an answer as it arrives, and checks whether it is, or may become, nothing but calls of ``names``.

    Each call is a JSON object of a ``name`` and then ``arguments``, which may be called ``parameters``. Blanks, commas
    and the marks of Markdown's fences may stand between calls and around them. The grammar ensures that
    arguments fit their schema.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._steps = _STEPS | {"name": {json.dumps(name): "comma" for name in names}}
        self._step, self._word = "between", ""
        self._calls: list[tuple[str, list[str]]] = []
        self.possible = True
        self.arguments = JsonScanner()

    @property
    def whole(self) -> bool:
        """Whether the answer so far is nothing but complete calls. A fence may be open."""
        return self.possible and bool(self._calls) and self._step in ("between", "fence") and not self._word

    @property
    def calls(self) -> list[tuple[str, str]]:
        """The name and the arguments of each call."""
        return [(name, "".join(parts).strip(_BLANKS)) for name, parts in self._calls]

    def take(self, text: str) -> None:
        """Reads the next ``text``."""
        while text and self.possible:
            if self._step == "arguments":
                arguments, text = self.arguments.split(text)
                self._calls[-1][1].append(arguments)
                self._step = "end" if self.arguments.whole else "arguments"
            else:
                self._read(text[0])
                text = text[1:]

    def _read(self, character: str) -> None:
        if character in _BLANKS and not self._word:
            return
        words = self._steps[self._step]
        word = self._word + character
        if word not in words:
            self._word, self.possible = word, any(other.startswith(word) for other in words)
            return
        if self._step == "name":
            self._calls.append((json.loads(word), []))
            self.arguments = JsonScanner()
        self._step, self._word = words[word], ""
