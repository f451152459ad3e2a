"""The race on a CPU: one compiled call for plain rows; other rows skip each edit that no row asks for."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import torch
from outrider.kernels.backend import compiled
from outrider.kernels.philox.variate_cache import cached_variates
from outrider.kernels.race_sample import reference
from outrider.kernels.race_sample.draws import BROKEN_FROM, GREEDY_BELOW, Draws
from outrider.kernels.race_sample.truncation import least_kept
from outrider.native.race import Race, race_of
from torch import Tensor

_NEVER = float("-inf")
_WORD = 2**64 - 1


def draw(logits: Tensor, draws: Draws) -> Tensor:
    """See `outrider.kernels.race_sample.draw`."""
    draws.check(logits)
    if (native_tokens := _native_tokens(logits, draws)) is not None:
        return native_tokens
    scores = _scores(logits, draws).numpy()
    tokens = scores.argmax(-1)
    tokens[scores[np.arange(len(tokens)), tokens] == _NEVER] = -1
    return torch.from_numpy(tokens).int()


def race(
    logits: Tensor, seeds: Sequence[int], positions: Sequence[int], temperatures: Sequence[float]
) -> list[int] | None:
    """See `outrider.kernels.race_sample.race`."""
    run = native_race()
    if run is None or logits.dtype != torch.float32 or not logits.is_contiguous():
        return None
    return run(logits, seeds, positions, temperatures)


def native_race() -> Race | None:
    """The race of the compiled library; None where there is none."""
    return None if (library := compiled()) is None else race_of(library, GREEDY_BELOW, BROKEN_FROM)


def _native_tokens(logits: Tensor, draws: Draws) -> Tensor | None:
    """Tokens of the compiled race; None where there is none, or where it cannot apply the rows' parameters."""
    if draws.penalties is not None or draws.allowed is not None or draws.truncates:
        return None
    seeds = draws.seeds.numpy().view(np.uint64).tolist()
    tokens = race(logits, seeds, draws.positions.tolist(), draws.temperatures.tolist())
    return None if tokens is None else torch.tensor(tokens, dtype=torch.int32)


def _scores(logits: Tensor, draws: Draws) -> Tensor:
    """The race's scores, as `reference.scores` defines them; ``logits`` themselves where nothing changes them."""
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
    return _race_scores(scaled, draws, hot)


def _any_broken(logits: Tensor) -> bool:
    return not logits.numpy().max() < BROKEN_FROM


def _scaled(logits: Tensor, temperatures: Tensor, hot: np.ndarray) -> Tensor:
    divisors = np.where(hot, temperatures.numpy(), np.float32(1))
    return logits if (divisors == 1).all() else logits / torch.from_numpy(divisors)[:, None]


def _masked(logits: Tensor, allowed: Tensor) -> Tensor:
    words = allowed.numpy()
    rows = np.flatnonzero((words != -1).any(-1))
    bits = np.unpackbits(words[rows].view(np.uint8), axis=1, count=logits.shape[1], bitorder="little")
    masked = logits.clone()
    masked.numpy()[rows] = np.where(bits, masked.numpy()[rows], np.float32(_NEVER))
    return masked


def _truncated(logits: Tensor, draws: Draws, hot: np.ndarray) -> Tensor:
    """Truncates; sorts and sums only rows that may drop tokens."""
    rows = torch.from_numpy(np.flatnonzero(hot & _truncated_rows(draws)))
    if len(rows) == 0:
        return logits
    columns = (draws.top_k, draws.top_p, draws.min_p)
    if len(rows) == len(logits):
        return logits.masked_fill(logits < least_kept(logits, *columns), _NEVER)
    chosen, top_k, top_p, min_p = logits[rows], *(None if column is None else column[rows] for column in columns)
    return logits.index_copy(0, rows, chosen.masked_fill(chosen < least_kept(chosen, top_k, top_p, min_p), _NEVER))


def _truncated_rows(draws: Draws) -> np.ndarray:
    truncated = np.zeros(len(draws.seeds), dtype=np.bool_)
    for column, idle in ((draws.top_k, 0), (draws.top_p, 1), (draws.min_p, 0)):
        if column is not None:
            truncated |= column.numpy() != idle
    return truncated


def _race_scores(logits: Tensor, draws: Draws, hot: np.ndarray) -> Tensor:
    """Logits, with the race's scores in rows whose temperature is above 0."""
    vocabulary, device = logits.shape[1], logits.device
    seeds, positions = draws.seeds.tolist(), draws.positions.tolist()
    rows = np.flatnonzero(hot)
    noise = [cached_variates(seeds[row] & _WORD, positions[row], vocabulary, device) for row in rows.tolist()]
    rolls = torch.stack(noise, out=_scratch(len(rows), vocabulary))
    if len(rows) == len(logits):
        return torch.sub(logits, rolls, out=rolls)
    chosen = torch.from_numpy(rows)
    return logits.index_copy(0, chosen, logits[chosen] - rolls)


def _scratch(rows: int, vocabulary: int) -> Tensor:
    """Float32 [rows, vocabulary] that the thread's next draw overwrites: fresh memory costs more than the race."""
    buffer: np.ndarray | None = getattr(_thread_local, "scratch", None)
    if buffer is None or buffer.size < rows * vocabulary:
        buffer = _thread_local.scratch = np.empty(rows * vocabulary, dtype=np.float32)
    return torch.from_numpy(buffer[: rows * vocabulary]).view(rows, vocabulary)


_thread_local = threading.local()
