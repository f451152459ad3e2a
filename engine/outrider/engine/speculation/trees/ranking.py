"""Ranks the guesses of many sequences by one top-k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import torch
from outrider.engine.sampling import Dice, Sampling
from outrider.kernels.backend import compiled
from outrider.kernels.race_sample import race_topk
from outrider.native.ranking import RankRows, rank_of
from torch import Tensor


class Rows(NamedTuple):
    """A sequence's rows of scores.

    Attributes:
        sampling: parameters of its request.
        dice: None for a greedy request. The dice of a guess's position rank the guesses of a sampled one.
        positions: absolute position of each row's guesses.
    """

    sampling: Sampling
    dice: Dice | None
    positions: Sequence[int]


Guesses = tuple[list[int], list[float]]
"""A row's tokens, best first, and each one's share of the race."""


def rank(parts: Sequence[Rows], scores: Tensor, most: int, targets: Tensor | None = None) -> list[list[Guesses]]:
    """The best guesses at each row of each part.

    A step costs one compiled call, or one top-k and one copy to the host, however many sequences there are.

    Args:
        parts: sequences, in the order of their rows.
        scores: float32 logits [rows, V].
        most: guesses a row.
        targets: the target's ids of the V tokens; None for equal ids.
    """
    most = min(most, scores.shape[-1])
    if scores.device.type == "cpu" and (library := compiled()) is not None:
        ranked = iter(rank_of(library)(_compiled_rows(parts, scores, targets), most))
        return [list(islice(ranked, len(part.positions))) for part in parts]
    noise = _noise(parts)
    noise = noise if noise is None or targets is None else noise[:, targets]
    tokens, shares = race_topk(_shaped(parts, scores), noise, most)
    tokens = tokens if targets is None else targets[tokens]
    rows = zip(tokens.tolist(), shares.tolist(), strict=True)
    return [list(islice(rows, len(part.positions))) for part in parts]


def _compiled_rows(parts: Sequence[Rows], scores: Tensor, targets: Tensor | None) -> RankRows:
    drawings = [part.sampling.drawing for part in parts for _ in part.positions]
    positions = [place for part in parts for place in part.positions]
    vocabulary = next((part.dice.vocabulary for part in parts if part.dice is not None), None)
    if vocabulary is None:
        vocabulary = scores.shape[-1] if targets is None else int(targets[-1]) + 1
    return RankRows(scores.clone(memory_format=torch.contiguous_format), drawings, positions, targets, vocabulary)


def _shaped(parts: Sequence[Rows], scores: Tensor) -> Tensor:
    """``scores`` after each part's temperature and truncation; parts of equal parameters in one call."""
    kinds: dict[Sampling, list[int]] = {}
    for row, sampling in enumerate(part.sampling for part in parts for _ in part.positions):
        kinds.setdefault(replace(sampling, seed=0), []).append(row)
    if len(kinds) == 1:
        return next(iter(kinds)).shape(scores)
    shaped = torch.empty_like(scores)
    for sampling, rows in kinds.items():
        shaped[rows] = sampling.shape(scores[rows])
    return shaped


def _noise(parts: Sequence[Rows]) -> Tensor | None:
    """Variates of all rows, zeros for greedy ones; None if all are greedy."""
    rows = [None if part.dice is None else part.dice.at(place) for part in parts for place in part.positions]
    drawn = next((row for row in rows if row is not None), None)
    if drawn is None:
        return None
    still = torch.zeros_like(drawn)
    return torch.stack([still if row is None else row for row in rows])
