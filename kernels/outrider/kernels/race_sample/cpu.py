"""The race on a CPU: one call where nothing but the dice changes a row; else what no row asks for is skipped."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from outrider.kernels.backend import compiled
from outrider.kernels.philox.variate_cache import cached_variates
from outrider.kernels.race_sample import reference
from outrider.kernels.race_sample.draws import BROKEN_FROM, GREEDY_BELOW, Drawn, Draws
from outrider.kernels.race_sample.truncation import least_kept
from outrider.native.race import Race, race_of
from torch import Tensor

_NEVER = float("-inf")
_WORD = 2**64 - 1


def draw(logits: Tensor, draws: Draws) -> Drawn:
    """See `outrider.kernels.race_sample.draw`."""
    draws.check(logits)
    if (won := _won(logits, draws)) is not None:
        return reference.told(logits, draws, won)
    scores = _scores(logits, draws).numpy()
    tokens = scores.argmax(-1)
    tokens[scores[np.arange(len(tokens)), tokens] == _NEVER] = -1
    return reference.told(logits, draws, torch.from_numpy(tokens))


def race(
    logits: Tensor, seeds: Sequence[int], positions: Sequence[int], temperatures: Sequence[float]
) -> list[int] | None:
    """See `outrider.kernels.race_sample.race`."""
    run = native_race()
    if run is None or logits.dtype != torch.float32 or not logits.is_contiguous():
        return None
    return run(logits, seeds, positions, temperatures)


@cache
def native_race() -> Race | None:
    """The race of the compiled library; None where it cannot be had."""
    return None if (library := compiled()) is None else race_of(library, GREEDY_BELOW, BROKEN_FROM)


def _won(logits: Tensor, draws: Draws) -> Tensor | None:
    """What the compiled race draws; None where it cannot be had, or does not do what is asked for."""
    if draws.penalties is not None or draws.allowed is not None or draws.truncates:
        return None
    seeds = draws.seeds.numpy().view(np.uint64).tolist()
    tokens = race(logits, seeds, draws.positions.tolist(), draws.temperatures.tolist())
    return None if tokens is None else torch.tensor(tokens, dtype=torch.int64)


def _scores(logits: Tensor, draws: Draws) -> Tensor:
    """What runs in the race, as `reference` has it; ``logits`` themselves where nothing is to be done."""
    raw = logits.float()
    changed = raw if draws.penalties is None else reference.penalised(raw, draws.penalties)
    if len(raw) == 0 or _any_broken(raw) or (changed is not raw and _any_broken(changed)):
        return reference.scores(logits, draws)
    if draws.allowed is not None:
        changed = _masked(changed, draws.allowed)
    hot = draws.temperatures.numpy() >= GREEDY_BELOW
    if not hot.any():
        return changed
    scaled = _scaled(changed, draws.temperatures, hot)
    if draws.truncates:
        scaled = _truncated(scaled, draws, hot)
    return _raced(scaled, draws, hot)


def _any_broken(logits: Tensor) -> bool:
    return not logits.numpy().max() < BROKEN_FROM


def _scaled(logits: Tensor, temperatures: Tensor, hot: np.ndarray) -> Tensor:
    by = np.where(hot, temperatures.numpy(), np.float32(1))
    return logits if (by == 1).all() else logits / torch.from_numpy(by)[:, None]


def _masked(logits: Tensor, allowed: Tensor) -> Tensor:
    words = allowed.numpy()
    rows = np.flatnonzero((words != -1).any(-1))
    bits = np.unpackbits(words[rows].view(np.uint8), axis=1, count=logits.shape[1], bitorder="little")
    masked = logits.clone()
    masked.numpy()[rows] = np.where(bits, masked.numpy()[rows], np.float32(_NEVER))
    return masked


def _truncated(logits: Tensor, draws: Draws, hot: np.ndarray) -> Tensor:
    """Sorting and summing only for rows that may drop tokens."""
    rows = torch.from_numpy(np.flatnonzero(hot & _cuts(draws)))
    if len(rows) == 0:
        return logits
    columns = (draws.top_k, draws.top_p, draws.min_p)
    if len(rows) == len(logits):
        return logits.masked_fill(logits < least_kept(logits, *columns), _NEVER)
    some, top_k, top_p, min_p = logits[rows], *(None if column is None else column[rows] for column in columns)
    return logits.index_copy(0, rows, some.masked_fill(some < least_kept(some, top_k, top_p, min_p), _NEVER))


def _cuts(draws: Draws) -> np.ndarray:
    cuts = np.zeros(len(draws.seeds), dtype=np.bool_)
    for column, idle in ((draws.top_k, 0), (draws.top_p, 1), (draws.min_p, 0)):
        if column is not None:
            cuts |= column.numpy() != idle
    return cuts


def _raced(logits: Tensor, draws: Draws, hot: np.ndarray) -> Tensor:
    """Scores of the rows that roll dice, in place of their logits."""
    vocabulary, device = logits.shape[1], logits.device
    seeds, positions = draws.seeds.tolist(), draws.positions.tolist()
    rows = np.flatnonzero(hot)
    noise = [cached_variates(seeds[row] & _WORD, positions[row], vocabulary, device) for row in rows.tolist()]
    rolls = torch.stack(noise, out=_space(len(rows), vocabulary))
    if len(rows) == len(logits):
        return torch.sub(logits, rolls, out=rolls)
    some = torch.from_numpy(rows)
    return logits.index_copy(0, some, logits[some] - rolls)


def _space(rows: int, vocabulary: int) -> Tensor:
    """Float32 [rows, vocabulary] to write to until the thread's next draw: fresh memory costs more than the race."""
    held: np.ndarray | None = getattr(_held, "space", None)
    if held is None or held.size < rows * vocabulary:
        held = _held.space = np.empty(rows * vocabulary, dtype=np.float32)
    return torch.from_numpy(held[: rows * vocabulary]).view(rows, vocabulary)


_held = threading.local()
