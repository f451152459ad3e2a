"""The tokens that end an answer, decided once, for tokenizer and verifier."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from outrider.engine.needs import need

if TYPE_CHECKING:
    import tokenizers

_ALWAYS = frozenset(
    {
        *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|end|>", "<|end_of_turn|>", "<end_of_turn>"),
        *("<end_of_utterance>", "<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>"),
    }
)
"""Names that no ordinary text has as one token."""
_SOMETIMES = frozenset(
    {
        *("</s>", "<EOT>", "_<EOT>", "▁<EOT>", "[EOT]", "[EOS]", "<eos>", "[e~["),
        *("<turn|>", "<|tool_response>", "<|return|>", "<|call|>", "<|calls|>", "<|flush|>"),
    }
)
"""Names that may be pieces of ordinary texts, as ``</s>`` is of HTML, or that only some models end answers with."""
_WITH_PARTS = ({"<|return|>", "<|call|>"}, {"<|flush|>", "<|calls|>"})
"""Where a vocabulary has these, ``<|end|>`` ends a part of an answer only."""


def end_names(vocabulary: Collection[str], special: Collection[str], templates: Iterable[str | None]) -> list[str]:
    """The tokens of a ``vocabulary`` that end an answer by their names.

    The files of many models name one such token only: that of the base model, where the chat model that was made of it
    ends answers by another one. A name that may be a piece of an ordinary text counts where it is ``special``, or where
    one of the chat ``templates`` writes it.
    """
    written = "\0".join(filter(None, templates))
    names = {name for name in _SOMETIMES if name in special or name in written} | _ALWAYS
    if any(parts.issubset(vocabulary) for parts in _WITH_PARTS):
        names.discard("<|end|>")
    return sorted(name for name in names if name in vocabulary)


def special_tokens(loaded: tokenizers.Tokenizer) -> dict[str, int]:
    """Ids of the special tokens by their texts."""
    added = loaded.get_added_tokens_decoder().items()
    return {str(token.content): number for number, token in added if token.special}


def mark_special(loaded: tokenizers.Tokenizer, listed: Sequence[str], templates: Sequence[str | None]) -> Sequence[str]:
    """Makes the ``listed`` tokens special, and those that end answers by their names; returns the latter."""
    special = special_tokens(loaded)
    ends = end_names(loaded.get_vocab(with_added_tokens=True), special, templates)
    lacking = [name for name in dict.fromkeys([*listed, *ends]) if name not in special]
    make = need("tokenizers", "texts of models").AddedToken
    loaded.add_special_tokens([make(name, normalized=False, special=True) for name in lacking])
    return ends
