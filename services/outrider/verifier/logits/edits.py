"""What a request changes about the target's logits, at each node of a tree by that node's own history.

Penalties, biases and bans touch few of a vocabulary's entries, so they are lists of entries, never a vector over the
vocabulary. The draw takes those of all rows of a step together; where no request asks for any, nothing is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from outrider.kernels.race_sample import Penalties
from outrider.models.speculation import MergedTree
from outrider.wire.sampling import SamplingParameters
from torch import Tensor

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]


def penalizes(asked: SamplingParameters) -> bool:
    """Whether tokens are penalized for standing in the prompt or the answer (Keskar et al. 2019, arXiv 1909.05858)."""
    return asked.repetition_penalty != 1.0 or asked.frequency_penalty != 0.0 or asked.presence_penalty != 0.0


def edits(asked: SamplingParameters) -> bool:
    """Whether `History` changes anything."""
    return penalizes(asked) or bool(asked.logit_bias or asked.bad_words or asked.min_tokens)


class EditBatch:
    """The changes to one step's rows of logits."""

    def __init__(self, vocabulary: int) -> None:
        self._vocabulary = vocabulary
        self._places: list[Ids] = []
        self._values: list[Floats] = []
        self._banned: list[int] = []
        self._allowed: dict[int, bytes] = {}
        self._hopeless: list[int] = []

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._places or self._banned or self._allowed or self._hopeless)

    def change(self, rows: Ids, ids: Ids, values: Floats) -> None:
        """At each of ``rows`` [m] and each of ``ids`` [k]: a factor that brings logits down, and a bias, [2, m, k].

        Rows ascend, from call to call too.
        """
        self._places.append((rows[:, None] * self._vocabulary + ids).reshape(-1))
        self._values.append(values.reshape(2, -1))

    def ban(self, row: int, ids: Sequence[int]) -> None:
        """Tokens that may not be drawn at ``row``."""
        self._banned.extend(row * self._vocabulary + token for token in ids)

    def allow(self, row: int, bits: bytes | None) -> None:
        """What alone may be drawn at ``row``, a bit for each token from the lowest of each byte on; None is nothing."""
        if bits is None:
            self._hopeless.append(row)
        else:
            self._allowed[row] = bits

    def penalties(self, rows: int, device: torch.device) -> Penalties | None:
        """Changes and bans, row after row of the step's ``rows``; None where there are none."""
        if not self._places and not self._banned:
            return None
        places, values = self._entries()
        rows_of, tokens = np.divmod(places, self._vocabulary)
        offsets = np.append(0, np.bincount(rows_of, minlength=rows).cumsum())
        parts = (offsets.astype(np.int32), tokens.astype(np.int32), *values)
        return Penalties(*(torch.from_numpy(np.ascontiguousarray(part)).to(device) for part in parts))

    def _entries(self) -> tuple[Ids, Floats]:
        """Places by row, each once, and their factors and biases; a ban goes before what else changes there."""
        if not self._banned:
            return np.concatenate(self._places), np.concatenate(self._values, axis=1)
        bans = np.array(self._banned, dtype=np.int64)
        never = np.stack([np.ones(len(bans)), np.full(len(bans), -np.inf)]).astype(np.float32)
        places, first = np.unique(np.concatenate([bans, *self._places]), return_index=True)
        return places, np.concatenate([never, *self._values], axis=1)[:, first]

    def allowed(self, rows: int, device: torch.device) -> Tensor | None:
        """What may be drawn at each of the step's ``rows``, as of `Draws`; None where no row says so."""
        if not self._allowed and not self._hopeless:
            return None
        words = np.full((rows, -(-self._vocabulary // 32)), -1, dtype=np.int32)
        words[self._hopeless] = 0
        for row, bits in self._allowed.items():
            words[row] = np.frombuffer(bits, dtype=np.int32)[: words.shape[1]]
        return torch.from_numpy(words).to(device)


class Rule(Protocol):
    """Something that edits the rows of one sequence."""

    def edit(self, batch: EditBatch, row: int, guesses: MergedTree) -> None:
        """Puts into ``batch`` what changes at the sequence's end (``row``) and behind each guess (the next rows)."""


class History:
    """A sequence's tokens as its edits look at them. It reads ``tokens``, which others extend.

    Args:
        asked: penalties, biases, bad words and ``min_tokens``, made in that order.
        tokens: prompt and answer; the first ``prompt`` of them are the prompt.
        stop_ids: ids that end the answer.
    """

    def __init__(self, asked: SamplingParameters, tokens: list[int], prompt: int, stop_ids: frozenset[int]) -> None:
        self._asked, self._tokens, self._prompt, self._stops = asked, tokens, prompt, sorted(stop_ids)
        self._penalizes = penalizes(asked)
        self._table = _Table(asked.logit_bias)
        if asked.repetition_penalty != 1.0:
            self._table.see(tokens[:prompt])
        self._counted = prompt
        self._bans: dict[tuple[int, ...], list[int]] = {}
        for *before, last in asked.bad_words:
            self._bans.setdefault(tuple(before), []).append(last)
        self._lengths = sorted({len(before) for before in self._bans})

    def edit(self, batch: EditBatch, row: int, guesses: MergedTree) -> None:
        """As `Rule.edit`."""
        if self._penalizes:
            self._table.count(self._tokens[self._counted :])
            self._counted = len(self._tokens)
        if self._penalizes or self._asked.logit_bias:
            self._change(batch, row, guesses)
        if self._bans or self._asked.min_tokens:
            for node, path in enumerate(paths(guesses)):
                batch.ban(row + node, self._banned(path))

    def _change(self, batch: EditBatch, row: int, guesses: MergedTree) -> None:
        known = len(self._table.ids)
        self._table.see_also(guesses.tokens if self._penalizes else [])
        ids, counts, seen = self._table.ids, self._table.counts, self._table.seen
        rows = 1 + len(guesses)
        here, there = np.tile(counts, (rows, 1)), np.tile(seen, (rows, 1))
        if self._penalizes:
            for node, (token, parent) in enumerate(zip(guesses.tokens, guesses.parents, strict=True), start=1):
                here[node], there[node] = here[parent + 1], there[parent + 1]
                here[node, self._table.place[token]] += 1
                there[node, self._table.place[token]] = True
        batch.change(np.arange(row, row + rows), ids, self._values(here, there))
        self._table.forget(known)

    def _values(self, counts: Floats, seen: NDArray[np.bool_]) -> Floats:
        asked = self._asked
        factors = np.where(seen, np.float32(asked.repetition_penalty), np.float32(1))
        less = np.float32(asked.frequency_penalty) * counts + np.float32(asked.presence_penalty) * (counts > 0)
        return np.stack([factors, self._table.bias - less]).astype(np.float32)

    def _banned(self, path: list[int]) -> list[int]:
        banned = []
        if len(self._tokens) - self._prompt + len(path) < self._asked.min_tokens:
            banned.extend(self._stops)
        for length in self._lengths:
            banned.extend(self._bans.get(self._tail(path, length), ()))
        return banned

    def _tail(self, path: list[int], length: int) -> tuple[int, ...]:
        before = max(length - len(path), 0)
        start = max(len(self._tokens) - before, 0)
        return (*self._tokens[start:], *path[len(path) - (length - before) :])


def paths(guesses: MergedTree) -> Iterator[list[int]]:
    """Guessed tokens from a sequence's end to itself (none) and to each node, that node's own included."""
    found: list[list[int]] = [[]]
    yield found[0]
    for token, parent in zip(guesses.tokens, guesses.parents, strict=True):
        found.append([*found[parent + 1], token])
        yield found[-1]


class _Table:
    """Tokens that may need another logit: how often the answer holds each, whether anything does, and its bias."""

    def __init__(self, biases: Mapping[int, float]) -> None:
        biases = dict(sorted(biases.items()))
        self.ids: Ids = np.array(list(biases), dtype=np.int64)
        self.bias: Floats = np.array(list(biases.values()), dtype=np.float32)
        self.counts: Floats = np.zeros(len(self.ids), dtype=np.float32)
        self.seen: NDArray[np.bool_] = np.zeros(len(self.ids), dtype=np.bool_)
        self.place = {token: index for index, token in enumerate(biases)}

    def see_also(self, tokens: Sequence[int]) -> None:
        """Has a place for each of ``tokens``, which changes nothing yet."""
        new = [token for token in dict.fromkeys(tokens) if token not in self.place]
        if new:
            self.place.update((token, len(self.ids) + index) for index, token in enumerate(new))
            self.ids = np.append(self.ids, np.array(new, dtype=np.int64))
            for name in ("bias", "counts", "seen"):
                old = getattr(self, name)
                setattr(self, name, np.append(old, np.zeros(len(new), dtype=old.dtype)))

    def forget(self, known: int) -> None:
        """Drops all places but the first ``known``."""
        for token in self.ids[known:].tolist():
            del self.place[token]
        self.ids, self.bias = self.ids[:known], self.bias[:known]
        self.counts, self.seen = self.counts[:known], self.seen[:known]

    def see(self, tokens: Sequence[int]) -> None:
        """Notes that ``tokens`` stand somewhere."""
        self.see_also(tokens)
        self.seen[[self.place[token] for token in tokens]] = True

    def count(self, tokens: Sequence[int]) -> None:
        """Notes that the answer holds ``tokens``."""
        self.see(tokens)
        for token in tokens:
            self.counts[self.place[token]] += 1
