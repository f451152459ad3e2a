"""How byte-level tokenizers cut a text before merging (``tokenizer.ggml.pre``), for the ``tokenizers`` library.

The patterns are those of the models' own ``tokenizer.json``; the names, and which of them have the same cuts, are
llama.cpp's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_AFTER_QWEN2 = rf"{_WORDS}|\p{{N}}|{_SIGNS}|{_SPACES}"
_QWEN2 = rf"{_CONTRACTIONS}|{_AFTER_QWEN2}"
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_LLAMA3 = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_SIGNS}|{_SPACES}"
_MINICPM5 = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}+|{_SIGNS}|{_SPACES}"
_SEED_CODER = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
_JAIS2 = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_SIGNS}|\s*[\r\n]+|" + "".join(
    rf"\s{{{count}}}(?!\S)|" for count in ("512", "256", "128", "64", "32", "16", "8", "4", "1,2")
) + r"\s{1}"  # fmt: skip
_EXAONE_MOE = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
_BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
_DEEPSEEK_LETTERS = (
    r"\s?["
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481"
    "\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b"
    "\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b"
    "\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
    "]+"
)
"""The letters that DeepSeek's patterns list: Latin, Greek, Cyrillic, Armenian, Georgian, Cherokee and a few more."""
_DEEPSEEK_CJK = "[一-龥ࠀ-一가-퟿]+"
_KANA = "[一-龥぀-ゟ゠-ヿ]+"
_DEEPSEEK3_WORDS = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"""
)


def _cased(contractions: str, numbers: str) -> str:
    """The pattern of o200k: words end where a lower letter is followed by an upper one."""
    upper, lower, before = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"[^\r\n\p{L}\p{N}]?"
    words = f"{before}{upper}*{lower}+{contractions}|{before}{upper}+{lower}*{contractions}"
    return rf"{words}|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"


class Split(NamedTuple):
    """How a text is cut.

    Attributes:
        steps: pre-tokenizers of ``tokenizers``.
        normalizer: its normalizer.
        whole_first: whether a piece that is a token as a whole stays whole.
        adds_bos: whether a text begins with the token for that, where the file does not say.
    """

    steps: tuple[dict[str, Any], ...]
    normalizer: dict[str, Any] | None = None
    whole_first: bool = False
    adds_bos: bool = False


def _bytes(use_regex: bool) -> dict[str, Any]:
    """The pre-tokenizer to GPT-2's alphabet of bytes, after GPT-2's own cuts if ``use_regex``."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": use_regex}


def _cut(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _alone(digits: bool) -> dict[str, Any]:
    return {"type": "Digits", "individual_digits": digits}


def _cuts(*patterns: str, normalizer: dict[str, Any] | None = None, **more: bool) -> Split:
    """Cuts by each of the patterns in turn, before the alphabet of bytes."""
    return Split((*map(_cut, patterns), _bytes(False)), normalizer, **more)


_NFC = {"type": "NFC"}
_LLAMA = _cuts(_LLAMA3, whole_first=True, adds_bos=True)
_LLAMA_BY_MERGES = _cuts(_LLAMA3)
_QWEN = _cuts(_QWEN2, normalizer=_NFC)
_QWEN_PLAIN = _cuts(_QWEN2)
_GPT2 = Split((_bytes(True),))
_GPT_NEOX = Split((_bytes(True),), _NFC)
_DIGITS = Split((_alone(True), _bytes(True)))
_O200K = _cuts(_cased(f"{_CONTRACTIONS}?", r"\p{N}{1,3}"))
_DEEPSEEK3 = _cuts(r"\p{N}{1,3}", _KANA, rf"{_DEEPSEEK3_WORDS}[\r\n]*|{_SPACES}")
_BLOOMS = _cuts(_BLOOM)
_BAILINGS = _cuts(_BAILING)
_AYA = _cuts(r"\d{1,3}(?=(?:\d{3})*\b)", _cased(f"{_CONTRACTIONS}?", r"\p{N}{1,3}"))
_FALCON = Split(
    ({"type": "Punctuation", "behavior": "Contiguous"}, _bytes(True), _alone(False), _cut("[0-9][0-9][0-9]"))
)

SPLITS = {
    **dict.fromkeys(("default", "falcon"), _FALCON),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"), _LLAMA),
    **dict.fromkeys(("smaug-bpe", "dbrx", "chatglm-bpe", "glm4"), _LLAMA_BY_MERGES),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "f2llmv2"), _QWEN),
    **dict.fromkeys(("megrez", "kormo", "stablelm2", "hunyuan", "solar-open", "grok-2"), _QWEN_PLAIN),
    **dict.fromkeys(("gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "exaone4", "jais", "trillion"), _GPT2),
    **dict.fromkeys(("granite-docling", "modern-bert", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de"), _GPT2),
    **dict.fromkeys(("mpt", "olmo"), _GPT_NEOX),
    **dict.fromkeys(("smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"), _DIGITS),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), _O200K),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"), _DEEPSEEK3),
    **dict.fromkeys(("bloom", "poro-chat", "gpt3-finnish"), _BLOOMS),
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), _BAILINGS),
    **dict.fromkeys(("tiny_aya", "cohere2moe"), _AYA),
    "command-r": _DIGITS._replace(normalizer=_NFC),
    "deepseek-coder": Split(
        (*map(_cut, ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK)), _alone(True), _bytes(False))
    ),
    "deepseek-llm": Split(
        (
            *map(_cut, ("[\r\n]", _DEEPSEEK_LETTERS, r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", _DEEPSEEK_CJK)),
            *(_alone(True), _bytes(False)),
        )
    ),
    "exaone-moe": _cuts(_EXAONE_MOE),
    "jais-2": _cuts(_JAIS2),
    "laguna": Split(
        (
            {**_cut(r"(?:\r?\n)+(?!\r?\n)"), "behavior": "MergedWithNext"},
            *(_cut(_QWEN2), _bytes(False)),
        )
    ),
    "minicpm5": _cuts(r"\p{N}{1,3}", _MINICPM5, whole_first=True),
    "qwen35": _cuts(_QWEN35, normalizer=_NFC),
    "seed-coder": _cuts(_SEED_CODER),
    "spark2_5": Split(
        (
            *map(_cut, (r"\p{N}{1,3}", _KANA, rf"{_DEEPSEEK3_WORDS}|[\r\n]|\s+(?!\S)|\s+")),
            *(_alone(True), _bytes(False)),
        )
    ),
    "tekken": _cuts(_cased("", r"\p{N}"), whole_first=True, adds_bos=True),
    "ufakzeka": _cuts(_AFTER_QWEN2),
    "viking": Split((_cut(_BLOOM), _alone(True), _bytes(False))),
}
"""Splits by the value of ``tokenizer.ggml.pre``; ``default``, which stands where it is absent, is Falcon's."""
