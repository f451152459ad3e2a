"""Definitions of grammars for llguidance, and its limits for compiling and following them.

The process that tries definitions imports this module, so nothing here imports torch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from outrider.engine.requests.grammars import is_lark

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from llguidance._lib import JsonCompileOptions

MOST_BYTES = 256 << 10
"""Size of the largest definition, in bytes."""
_BLANKS = r"[\x20\x0A]{1,16}"
"""Blanks between JSON's tokens: enough to indent, but no endless run of blanks, which small models tend to write."""
_REGEX_FUEL = 100_000
"""Expressions in all terminals: a repeat such as ``a{25000}`` takes four for each repetition."""
_MASK_FUEL = 50_000
"""Expressions that one mask may add."""
_MASK_ITEMS = 50_000
"""Earley items of one mask."""
_ROW_ITEMS = 4_000
"""Open alternatives at one position."""
_LEXER_STATES = 250_000
"""States of the lexer over all answers of one grammar, at 1 to 2 kB each."""
_SYMBOLS = 500_000
"""Symbols of all rules."""
_GBNF = re.compile(
    r"""
      "(?:\\.|[^"\\])*"
    | (?P<range>\[(?:\\.|[^\]\\])*\])
    | \#[^\n]*
    | (?P<any>\.)
    | (?P<token>!?<[^<>\s]+>)
    """,
    re.VERBOSE | re.DOTALL,
)
"""The parts of GBNF (https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md) that the converter takes
for others, with comments, in which these do not count.
"""
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|.)", re.DOTALL)
_NO_DETAILS = "<non-verbose/>"
_MOST_ERROR = 400
_OF_SCHEMA = re.compile(
    r"at (\d+)\(\d+\): failed to compile JSON schema: (?P<why>.*?)\n(?: *\d+ \| [^\n]*\n)*? *\1 \| (?P<rule>\w+)",
    re.DOTALL,
)
"""An error of a schema inside a grammar, which quotes the rules around it."""


def load_tokenizer(tokenizer: bytes, vocabulary: int, eos_ids: Sequence[int]) -> LLTokenizer:
    """The vocabulary as a trie, from the contents of a ``tokenizer.json``.

    `ValueError` for a kind of tokenizer that llguidance does not support.
    """
    from llguidance import LLTokenizer

    return LLTokenizer(tokenizer.decode(), n_vocab=vocabulary, eos_token=list(eos_ids))


def definition(kind: str, text: str) -> str:
    """llguidance's definition of a grammar, from its text; `ValueError` if it cannot be parsed.

    ``kind`` and ``text`` are those of a `GrammarText`.
    """
    from llguidance import LLMatcher, grammar_from

    if kind == "json_schema":
        options: JsonCompileOptions = {"whitespace_pattern": _BLANKS}
        return LLMatcher.grammar_from_json_schema(text, defaults=options)
    try:
        match kind:
            case "regex":
                return grammar_from("regex", text)
            case "choice":
                return grammar_from("choice", text)
            case _:
                return grammar_from("lark", text if is_lark(text) else _from_gbnf(text))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _from_gbnf(text: str) -> str:
    from llguidance.gbnf_to_lark import gbnf_to_lark

    text = _GBNF.sub(_for_converter, text)
    try:
        return gbnf_to_lark(text)
    except Exception as error:
        raise ValueError(f"it is no GBNF: {error}") from None


def _for_converter(part: re.Match[str]) -> str:
    """A part of a GBNF grammar as llguidance's converter understands it as llama.cpp does."""
    if part["token"]:
        raise ValueError(f"it names the token {part['token']}, which is only possible in Lark")
    if part["any"]:
        return r'(. | "\n")'
    plain = _ESCAPE.sub(_unescaped, part[0])
    return plain.replace("&", r"\x26").replace("~", r"\x7E") if part["range"] else plain


def _unescaped(escape: re.Match[str]) -> str:
    if (digits := escape[1] or escape[2] or escape[3]) is None:
        return escape[0]
    code = int(digits, 16)
    return f"\\x{code:02X}" if code < 0x80 else chr(code)


def make_matcher(tokenizer: LLTokenizer, llg_definition: str) -> LLMatcher:
    """A matcher at the beginning of a `definition`; `ValueError` if the definition cannot be compiled."""
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(
        max_items_in_row=_ROW_ITEMS,
        initial_lexer_fuel=_REGEX_FUEL,
        step_lexer_fuel=_MASK_FUEL,
        step_max_items=_MASK_ITEMS,
        max_lexer_states=_LEXER_STATES,
        max_grammar_size=_SYMBOLS,
        verbose_errors=False,
    )
    matcher = LLMatcher(tokenizer, llg_definition, log_level=0, limits=limits)
    if matcher.is_error():
        raise ValueError(error_of(matcher))
    return matcher


def error_of(matcher: LLMatcher) -> str:
    """The error of a matcher, without its state."""
    return brief(matcher.get_error().replace(_NO_DETAILS, ""))


def brief(why: object) -> str:
    """The beginning of an error: some errors of llguidance quote the whole definition.

    The error of a schema inside a grammar quotes nothing, and ends with the name of its rule: ``(in the rule NAME)``.
    """
    text = str(why).strip()
    if of_schema := _OF_SCHEMA.match(text):
        text = f"{of_schema['why']} (in the rule {of_schema['rule']})"
    return text if len(text) <= _MOST_ERROR else f"{text[:_MOST_ERROR]}..."
