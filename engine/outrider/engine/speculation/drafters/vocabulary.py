"""A table from a draft model's token ids to the ids of a target with another vocabulary."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from outrider.engine.speculation.drafters.drafter import DrafterError
from torch import Tensor


class VocabularyMap:
    """Maps the target's tokens to the drafter's, and the drafter's scores to the target's tokens.

    A token of the target that the drafter lacks maps to the drafter's token 0.

    Args:
        targets: the target's id for each id of the drafter, -1 for none.
        vocabulary_size: size of the target's vocabulary.
    """

    def __init__(self, targets: Sequence[int], vocabulary_size: int) -> None:
        self._ids = torch.tensor([own for own, target in enumerate(targets) if target >= 0])
        self._targets = torch.tensor([target for target in targets if target >= 0])
        self._own = {target: own for own, target in reversed(list(enumerate(targets)))}
        self._size = vocabulary_size

    @classmethod
    def load(cls, option: Any, own_size: int, vocabulary_size: int) -> VocabularyMap:
        """The table in an operator's option: a list, or the path of a JSON file with a list.

        Raises:
            DrafterError: the option is no list of ``own_size`` ids of the target, each at most once, or -1.
        """
        values = _read(option) if isinstance(option, str) else option
        if not isinstance(values, list) or not all(isinstance(v, int) and not isinstance(v, bool) for v in values):
            raise DrafterError("vocabulary_map must be a list of token ids, or the path of a JSON file with one")
        if len(values) != own_size:
            raise DrafterError(f"vocabulary_map has {len(values)} entries; the draft model has {own_size} tokens")
        used = [value for value in values if value >= 0]
        if not used or max(used) >= vocabulary_size or min(values) < -1 or len(set(used)) < len(used):
            raise DrafterError(
                f"vocabulary_map must lead to ids of the target below {vocabulary_size}, each at most once, or to -1"
            )
        return cls(values, vocabulary_size)

    def read(self, tokens: Iterable[int]) -> list[int]:
        """Maps the target's tokens to the drafter's."""
        return [self._own.get(token, 0) for token in tokens]

    def spread(self, logits: Tensor) -> Tensor:
        """Maps logits [n, own_size] to [n, vocabulary_size]; minus infinity for tokens that the drafter lacks."""
        spread = logits.new_full((len(logits), self._size), float("-inf"))
        spread[:, self._targets.to(logits.device)] = logits[:, self._ids.to(logits.device)]
        return spread


def _read(path: str) -> Any:
    try:
        return json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DrafterError(f"vocabulary_map {path} cannot be read: {error}") from None
