"""A request's edits of the target's logits, at each node of a tree by the tokens before that node.

Penalties, biases and bans touch few entries of a vocabulary, so they are lists of entries, never a vector over the
vocabulary. The draw takes the entries of all rows of a step together. A step without edits does no work here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from outrider.engine.requests.parameters import SamplingParams
from outrider.engine.speculation import MergedTree
from outrider.kernels.race_sample import Penalties
from torch import Tensor

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
Words = NDArray[np.int32]


def penalizes(parameters: SamplingParams) -> bool:
    """Whether earlier occurrences of a token are penalized (Keskar et al. 2019, arXiv 1909.05858)."""
    return parameters.repeat_last_n != 0 and (
        parameters.repetition_penalty != 1.0
        or parameters.frequency_penalty != 0.0
        or parameters.presence_penalty != 0.0
    )


def edits(parameters: SamplingParams) -> bool:
    """Whether `History` changes anything."""
    bans = parameters.bad_words or parameters.min_tokens or parameters.allowed_token_ids
    return penalizes(parameters) or bool(parameters.logit_bias or bans)


class Mask(NamedTuple):
    """The tokens that a grammar allows at one place of one sequence.

    Attributes:
        tokens: the sequence's own list of tokens, which tells it from other sequences.
        place: number of tokens in front, those of the prompt and guesses included.
        bits: the allowed tokens, lowest bit of each byte first; None for none.
    """

    tokens: list[int]
    place: int
    bits: bytes | None


class EditBatch:
    """The edits of one step's rows of logits."""

    def __init__(self, vocabulary: int) -> None:
        self._vocabulary = vocabulary
        self._places: list[Ids] = []
        self._values: list[Floats] = []
        self._banned: list[int] = []
        self._masks: dict[int, Mask] = {}
        self._only: dict[int, Words] = {}

    def __bool__(self) -> bool:
        """Whether any row has edits."""
        return bool(self._places or self._banned or self._masks or self._only)

    def change(self, rows: Ids, ids: Ids, values: Floats) -> None:
        """Adds a penalty factor and a bias, ``values`` [2, m, k], for each of ``rows`` [m] and ``ids`` [k].

        Rows ascend within a call and from call to call.
        """
        self._places.append((rows[:, None] * self._vocabulary + ids).reshape(-1))
        self._values.append(values.reshape(2, -1))

    def ban(self, row: int, ids: Sequence[int]) -> None:
        """Bans the tokens ``ids`` at ``row``."""
        self._banned.extend(row * self._vocabulary + token for token in ids)

    def allow(self, row: int, mask: Mask) -> None:
        """Restricts ``row`` to the tokens of ``mask``."""
        self._masks[row] = mask

    def restrict(self, rows: range, ids: Ids) -> None:
        """Restricts ``rows`` to the tokens ``ids``, beside what `allow` says."""
        bits = np.zeros(32 * self._words, dtype=np.bool_)
        bits[ids] = True
        self._only.update(dict.fromkeys(rows, np.packbits(bits, bitorder="little").view(np.int32)))

    @property
    def _words(self) -> int:
        return -(-self._vocabulary // 32)

    def masks_belong(self, row: int, tokens: list[int], places: Sequence[int]) -> bool:
        """Whether the rows from ``row`` on have masks of just these ``places`` of the sequence that owns ``tokens``."""
        for at, place in enumerate(places, row):
            mask = self._masks.get(at)
            if mask is None or mask.tokens is not tokens or mask.place != place:
                return False
        return True

    def penalties(self, rows: int, device: torch.device) -> Penalties | None:
        """Penalties, biases and bans of the step's ``rows``, row by row; None without any."""
        if not self._places and not self._banned:
            return None
        places, values = self._entries()
        rows_of, tokens = np.divmod(places, self._vocabulary)
        offsets = np.append(0, np.bincount(rows_of, minlength=rows).cumsum())
        parts = (offsets.astype(np.int32), tokens.astype(np.int32), *values)
        return Penalties(*(torch.from_numpy(np.ascontiguousarray(part)).to(device) for part in parts))

    def _entries(self) -> tuple[Ids, Floats]:
        """Entries in the order of rows, without duplicates, with their factors and biases; a ban overrides others."""
        if not self._banned:
            return np.concatenate(self._places), np.concatenate(self._values, axis=1)
        bans = np.array(self._banned, dtype=np.int64)
        never = np.stack([np.ones(len(bans)), np.full(len(bans), -np.inf)]).astype(np.float32)
        places, first = np.unique(np.concatenate([bans, *self._places]), return_index=True)
        return places, np.concatenate([never, *self._values], axis=1)[:, first]

    def allowed(self, rows: int, device: torch.device) -> Tensor | None:
        """Tokens allowed at each of the step's ``rows``, as in `Draws`; None if no row is restricted."""
        if not self._masks and not self._only:
            return None
        words = np.full((rows, self._words), -1, dtype=np.int32)
        for row, mask in self._masks.items():
            words[row] = 0 if mask.bits is None else np.frombuffer(mask.bits, dtype=np.int32)[: self._words]
        for row, only in self._only.items():
            words[row] &= only
        return torch.from_numpy(words).to(device)


class Rule(Protocol):
    """Edits the rows of one sequence."""

    def edit(self, batch: EditBatch, row: int, guesses: MergedTree) -> None:
        """Adds to ``batch`` the edits at the sequence's end (``row``) and behind each guess (the next rows)."""


class History:
    """The `Rule` of a request's edits, from the sequence's tokens so far.

    Args:
        parameters: penalties, biases, bad words, ``min_tokens`` and allowed tokens, applied in that order.
        tokens: prompt and answer; read only, and extended by the sequence.
        prompt: number of leading tokens that are the prompt.
        stop_ids: ids that end the answer.
    """

    def __init__(self, parameters: SamplingParams, tokens: list[int], prompt: int, stop_ids: frozenset[int]) -> None:
        self._parameters, self._tokens, self._prompt, self._stops = parameters, tokens, prompt, sorted(stop_ids)
        self._penalizes = penalizes(parameters)
        self._table = _Table(parameters.logit_bias)
        self._window = parameters.repeat_last_n
        if self._window is None and parameters.repetition_penalty != 1.0:
            self._table.see(tokens[:prompt])
        self._first = self._counted = prompt if self._window is None else self._window_start(prompt)
        self._allowed: Ids = np.array(parameters.allowed_token_ids, dtype=np.int64)
        self._bans: dict[tuple[int, ...], list[int]] = {}
        for *before, last in parameters.bad_words:
            self._bans.setdefault(tuple(before), []).append(last)
        self._lengths = sorted({len(before) for before in self._bans})

    def edit(self, batch: EditBatch, row: int, guesses: MergedTree) -> None:
        """As `Rule.edit`."""
        if self._penalizes:
            self._table.count(self._tokens[self._counted :])
            self._counted = len(self._tokens)
            if self._window is not None:
                first, self._first = self._first, self._window_start(self._counted)
                self._table.count(self._tokens[first : self._first], -1)
        if self._penalizes or self._parameters.logit_bias:
            self._change(batch, row, guesses)
        if self._bans or self._parameters.min_tokens:
            for node, path in enumerate(paths(guesses)):
                batch.ban(row + node, self._banned(path))
        if len(self._allowed):
            batch.restrict(range(row, row + 1 + len(guesses)), self._allowed)

    def _window_start(self, length: int) -> int:
        """Place of the first of ``length`` tokens that penalties with a window count."""
        return 0 if self._window is None or self._window < 0 else max(length - self._window, 0)

    def _change(self, batch: EditBatch, row: int, guesses: MergedTree) -> None:
        size = len(self._table.ids)
        self._table.add_places(guesses.tokens if self._penalizes else [])
        ids, counts, seen = self._table.ids, self._table.counts, self._table.seen
        rows = 1 + len(guesses)
        counts, seen = np.tile(counts, (rows, 1)), np.tile(seen, (rows, 1))
        if self._penalizes:
            for node, (token, parent) in enumerate(zip(guesses.tokens, guesses.parents, strict=True), start=1):
                counts[node], seen[node] = counts[parent + 1], seen[parent + 1]
                counts[node, self._table.place[token]] += 1
                seen[node, self._table.place[token]] = True
            if self._window is not None:
                self._leave(counts, guesses)
                seen = counts > 0
        batch.change(np.arange(row, row + rows), ids, self._values(counts, seen))
        self._table.forget(size)

    def _leave(self, counts: Floats, guesses: MergedTree) -> None:
        """Takes out of each guess's ``counts`` the tokens that its path moves out of the window."""
        for node, path in enumerate(paths(guesses)):
            end = self._window_start(len(self._tokens) + len(path))
            for token in [*self._tokens[self._first : end], *path[: max(end - len(self._tokens), 0)]]:
                counts[node, self._table.place[token]] -= 1

    def _values(self, counts: Floats, seen: NDArray[np.bool_]) -> Floats:
        parameters = self._parameters
        factors = np.where(seen, np.float32(parameters.repetition_penalty), np.float32(1))
        frequency, presence = np.float32(parameters.frequency_penalty), np.float32(parameters.presence_penalty)
        less = frequency * counts + presence * (counts > 0)
        return np.stack([factors, self._table.bias - less]).astype(np.float32)

    def _banned(self, path: list[int]) -> list[int]:
        banned = []
        if len(self._tokens) - self._prompt + len(path) < self._parameters.min_tokens:
            banned.extend(self._stops)
        for length in self._lengths:
            banned.extend(self._bans.get(self._tail(path, length), ()))
        return banned

    def _tail(self, path: list[int], length: int) -> tuple[int, ...]:
        before = max(length - len(path), 0)
        start = max(len(self._tokens) - before, 0)
        return (*self._tokens[start:], *path[len(path) - (length - before) :])


def paths(guesses: MergedTree) -> Iterator[list[int]]:
    """The guessed tokens from a sequence's end to each row: none for the end, then up to and with each node."""
    tokens: list[list[int]] = [[]]
    yield tokens[0]
    for token, parent in zip(guesses.tokens, guesses.parents, strict=True):
        tokens.append([*tokens[parent + 1], token])
        yield tokens[-1]


class _Table:
    """Tokens whose logits may change: count in the answer, whether prompt or answer holds the token, and bias."""

    def __init__(self, biases: Mapping[int, float]) -> None:
        biases = dict(sorted(biases.items()))
        self.ids: Ids = np.array(list(biases), dtype=np.int64)
        self.bias: Floats = np.array(list(biases.values()), dtype=np.float32)
        self.counts: Floats = np.zeros(len(self.ids), dtype=np.float32)
        self.seen: NDArray[np.bool_] = np.zeros(len(self.ids), dtype=np.bool_)
        self.place = {token: index for index, token in enumerate(biases)}

    def add_places(self, tokens: Sequence[int]) -> None:
        """Adds a place for each of ``tokens``, without counting it."""
        new = [token for token in dict.fromkeys(tokens) if token not in self.place]
        if new:
            self.place.update((token, len(self.ids) + index) for index, token in enumerate(new))
            self.ids = np.append(self.ids, np.array(new, dtype=np.int64))
            for name in ("bias", "counts", "seen"):
                old = getattr(self, name)
                setattr(self, name, np.append(old, np.zeros(len(new), dtype=old.dtype)))

    def forget(self, size: int) -> None:
        """Drops all places except the first ``size``."""
        for token in self.ids[size:].tolist():
            del self.place[token]
        self.ids, self.bias = self.ids[:size], self.bias[:size]
        self.counts, self.seen = self.counts[:size], self.seen[:size]

    def see(self, tokens: Sequence[int]) -> None:
        """Notes that the prompt or the answer holds ``tokens``."""
        self.add_places(tokens)
        self.seen[[self.place[token] for token in tokens]] = True

    def count(self, tokens: Sequence[int], by: int = 1) -> None:
        """Counts ``tokens`` of the answer; ``by`` -1 takes them back."""
        self.see(tokens)
        for token in tokens:
            self.counts[self.place[token]] += by
