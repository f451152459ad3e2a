"""How a model writes function calls: tokenizers announce its format, gateways prompt for it and parse it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from outrider.wire.call_formats.call_format import CallFormat
from outrider.wire.call_formats.deepseek_v3 import DEEPSEEK_V3
from outrider.wire.call_formats.deepseek_v31 import DEEPSEEK_V31
from outrider.wire.call_formats.deepseek_v32 import DEEPSEEK_V32
from outrider.wire.call_formats.glm45 import GLM45
from outrider.wire.call_formats.glm47 import GLM47
from outrider.wire.call_formats.granite import GRANITE
from outrider.wire.call_formats.harmony import HARMONY
from outrider.wire.call_formats.hermes import HERMES
from outrider.wire.call_formats.kimi_k2 import KIMI_K2
from outrider.wire.call_formats.llama3 import LLAMA3
from outrider.wire.call_formats.mistral import MISTRAL
from outrider.wire.call_formats.mistral_v11 import MISTRAL_V11
from outrider.wire.call_formats.pythonic import PYTHONIC
from outrider.wire.call_formats.qwen3_coder import QWEN3_CODER

FORMATS = {
    "kimi_k2": KIMI_K2,
    "deepseek_v3": DEEPSEEK_V3,
    "deepseek_v31": DEEPSEEK_V31,
    "deepseek_v32": DEEPSEEK_V32,
    "mistral_v11": MISTRAL_V11,
    "mistral": MISTRAL,
    "harmony": HARMONY,
    "granite": GRANITE,
    "glm47": GLM47,
    "glm45": GLM45,
    "hermes": HERMES,
    "qwen3_coder": QWEN3_CODER,
    "pythonic": PYTHONIC,
    "llama3": LLAMA3,
}
"""Formats by name; where a template has the signs of several, the first one counts."""

DEFAULT = "hermes"


class Mark(msgspec.Struct, frozen=True):
    """A part of a format that is one token of the vocabulary; a ``silent`` one leaves no text behind."""

    text: str
    token: int
    silent: bool


class CallStyle(msgspec.Struct, frozen=True):
    """How one model writes calls; its tokenizer announces this in its status under ``calls``."""

    name: str = DEFAULT
    marks: tuple[Mark, ...] = ()

    @property
    def format(self) -> CallFormat:
        """The named format; the default one where a tokenizer of a later version names an unknown one."""
        return FORMATS.get(self.name, FORMATS[DEFAULT])


def format_of(template: str, has_token: Callable[[str], bool]) -> str:
    """Name of the format that a chat ``template`` shows, else of one whose marks are all tokens, else `DEFAULT`."""
    source = template.replace('\\"', '"')
    shown = (name for name, form in FORMATS.items() if all(sign in source for sign in form.signs))
    known = (name for name, form in FORMATS.items() if form.marks and all(map(has_token, form.marks)))
    return next(shown, None) or next(known, DEFAULT)
