"""Calls without the marks of a model's format: an answer that is JSON and nothing else, bare or in a fence.

Models that were trained on code write calls so, whatever their template shows them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from outrider.gateway.tool_calls.arguments import Arguments

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
"""By step: the words that may come next, and the step behind each. No word of a step begins with another."""


def head_pattern(names: Iterable[str]) -> str:
    """A regular expression, as it stands between slashes in Lark, of what precedes the arguments of a bare call.

    It has all beginnings that `BareCalls` reads, and some that it does not read.
    """
    name = "|".join(re.escape(json.dumps(name)).replace("/", r"\/") for name in names)
    words = ["[\\x20\\t\\r\\n,`]*(json)?", r"\{", '"name"', ":", f"({name})", ",", '"(arguments|parameters)"', ":", ""]
    return r"[\x20\t\r\n]*".join(words)


class BareCalls:
    """Reads an answer as it comes, and tells whether it is, or may become, calls of ``names`` and nothing else.

    Each call is a JSON object of a ``name`` and then ``arguments``, which may be called ``parameters``. Blanks, commas
    and the marks of Markdown's fences may stand between calls and around them. The grammar has seen to it that
    arguments are what their schema allows.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._steps = _STEPS | {"name": {json.dumps(name): "comma" for name in names}}
        self._step, self._word = "between", ""
        self._calls: list[tuple[str, list[str]]] = []
        self.possible = True
        self.arguments = Arguments()

    @property
    def whole(self) -> bool:
        """Whether the answer so far is calls and nothing else. A fence may be open."""
        return self.possible and bool(self._calls) and self._step in ("between", "fence") and not self._word

    @property
    def calls(self) -> list[tuple[str, str]]:
        """The name and the arguments of each call."""
        return [(name, "".join(parts).strip(_BLANKS)) for name, parts in self._calls]

    def take(self, text: str) -> None:
        """Reads what comes next."""
        while text and self.possible:
            if self._step == "arguments":
                told, text = self.arguments.split(text)
                self._calls[-1][1].append(told)
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
            self.arguments = Arguments()
        self._step, self._word = words[word], ""
