"""Guessing with another vocabulary than the target's: a table from the drafter's token ids to the target's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from outrider.models.speculation.drafter import DrafterError
from torch import Tensor


class VocabularyMap:
    """Reads the target's tokens as the drafter's, and gives the drafter's scores to the target's tokens.

    A token of the target that the drafter lacks is read as the drafter's token 0.

    Args:
        targets: for each id of the drafter the target's, -1 for none.
        vocabulary_size: of the target.
    """

    def __init__(self, targets: Sequence[int], vocabulary_size: int) -> None:
        self._known = torch.tensor([own for own, target in enumerate(targets) if target >= 0])
        self._targets = torch.tensor([target for target in targets if target >= 0])
        self._own = {target: own for own, target in reversed(list(enumerate(targets)))}
        self._size = vocabulary_size

    @classmethod
    def load(cls, given: Any, own_size: int, vocabulary_size: int) -> VocabularyMap:
        """The table in an operator's option: a list, or the path of a JSON file that holds one.

        Raises:
            DrafterError: it is no list of ``own_size`` ids of the target, -1 for none, each at most once.
        """
        values = _read(given) if isinstance(given, str) else given
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
        """The target's tokens as the drafter's."""
        return [self._own.get(token, 0) for token in tokens]

    def spread(self, logits: Tensor) -> Tensor:
        """Logits [n, own_size] as [n, vocabulary_size]; minus infinity for tokens that the drafter lacks."""
        spread = logits.new_full((len(logits), self._size), float("-inf"))
        spread[:, self._targets.to(logits.device)] = logits[:, self._known.to(logits.device)]
        return spread


def _read(path: str) -> Any:
    try:
        return json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DrafterError(f"vocabulary_map {path} cannot be read: {error}") from None
