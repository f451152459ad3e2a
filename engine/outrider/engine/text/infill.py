"""The tokens with which a model fills in the text between a prefix and a suffix (Bavarian et al. 2022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from outrider.engine.text.errors import TextError

_MARKS: tuple[tuple[str, str, str | None], ...] = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5-Coder, CodeGemma, Granite 4
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite Code
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek-Coder
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # Code Llama
    ("<PRE>", "<SUF>", "<MID>"),
    ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),  # GLM 4.5
    ("[PREFIX]", "[SUFFIX]", None),  # Codestral
)
"""The marks of a prefix, of a suffix and of the text between them, in the texts of models' tokens."""
_ENDS = (
    *("<|fim_pad|>", "<fim_pad>", "<fim-pad>", "<|repo_name|>", "<repo_name>", "<reponame>", "<|fim_repo|>"),
    *("<|file_sep|>", "<file_sep>", "<|file_separator|>", "<filename>", "<gh_stars>", "▁<EOT>", "<EOT>"),
)
"""Tokens behind which another file begins, and those that end what was filled in."""
_SEPARATORS = ("<|file_sep|>", "<file_sep>", "<|file_separator|>", "<filename>")
"""Tokens in front of a file's name, where several files of a repository are a prompt (Hui et al. 2024)."""
_ROLES = ("fim_pre", "fim_suf", "fim_mid")
_END_ROLES = ("fim_pad", "fim_rep", "fim_sep")
"""Names of such tokens in GGUF files (docs/gguf.md of ggml)."""


class Infill(NamedTuple):
    """Ids of the marks; where there is no ``middle``, the suffix comes first. ``ends`` end the answer.

    ``separator`` stands in front of a file's name.
    """

    prefix: int
    suffix: int
    middle: int | None
    ends: tuple[int, ...]
    separator: int | None = None

    @classmethod
    def of(cls, vocabulary: Mapping[str, int], names: Mapping[str, str]) -> Infill | None:
        """The marks in a ``vocabulary``, those with such ``names`` before others; None if it has none."""
        named = [names.get(role) for role in _ROLES]
        for marks in (named, *_MARKS):
            ids = [None if mark is None else vocabulary.get(mark) for mark in marks]
            if ids[0] is not None and ids[1] is not None and (ids[2] is not None or marks[2] is None):
                ends = [*marks, *_ENDS, *map(names.get, _END_ROLES)]
                found = (vocabulary[end] for end in ends if end is not None and end in vocabulary)
                separators = map(vocabulary.get, (names.get("fim_sep", ""), *_SEPARATORS))
                separator = next((token for token in separators if token is not None), None)
                return cls(ids[0], ids[1], ids[2], tuple(dict.fromkeys(found)), separator)
        return None

    def separated(self, files: Sequence[Sequence[int]]) -> list[int]:
        """The tokens of ``files``, each behind the separator; `TextError` where there is none."""
        if files and self.separator is None:
            raise TextError("this model has no token between files, so there may be none beside the prompt")
        return [token for file in files for token in (self.separator or 0, *file)]

    def around(self, before: Sequence[int], after: Sequence[int]) -> list[int]:
        """The prompt for the text between the tokens ``before`` and those ``after`` it."""
        if self.middle is None:
            return [self.suffix, *after, self.prefix, *before]
        return [self.prefix, *before, self.suffix, *after, self.middle]
