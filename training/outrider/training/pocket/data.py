"""Token streams: documents packed one after another, each ended by the end-of-text token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from outrider.training.pocket.corpus import Document
from outrider.training.pocket.tokenizer import END
from tokenizers import Tokenizer
from torch import Tensor

Stream = npt.NDArray[np.uint16]


def pack(tokenizer: Tokenizer, documents: Iterable[Document], seed: int) -> Stream:
    """Encodes `documents` in an order drawn from `seed`; each ends with an end-of-text token."""
    documents = list(documents)
    order = np.random.default_rng(seed).permutation(len(documents))
    end = tokenizer.encode(END).ids
    ids: list[int] = []
    for encoding in tokenizer.encode_batch([documents[i].text for i in order]):
        ids += [*encoding.ids, *end]
    return np.array(ids, np.uint16)


def write(streams: Sequence[Stream], path: Path) -> None:
    """Writes `streams` end to end as little-endian 16-bit ids."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.concatenate(streams).astype("<u2").tofile(path)


def read(path: Path) -> Stream:
    """Maps a stream written by `write`."""
    return np.memmap(path, dtype="<u2", mode="r")


class Windows:
    """Windows of a stream, in an order that depends only on the seed and the number of tokens seen.

    Every epoch shifts the grid and shuffles it anew: a token occurs once in an epoch, each time in another window.
    """

    def __init__(self, stream: Stream, seed: int) -> None:
        self.stream, self.seed = stream, seed
        self._order: tuple[tuple[int, int], npt.NDArray[np.int64]] | None = None

    def _permutation(self, epoch: int, length: int) -> npt.NDArray[np.int64]:
        if self._order is None or self._order[0] != (epoch, length):
            count = (len(self.stream) - 1) // length - 1
            order = np.random.default_rng((self.seed, epoch)).permutation(max(1, count))
            self._order = (epoch, length), order
        return self._order[1]

    def take(self, seen: int, rows: int, length: int) -> Tensor:
        """The next ids [rows, length + 1] after `seen` tokens."""
        out = np.empty((rows, length + 1), np.int64)
        for row in range(rows):
            epoch, within = divmod(seen + row * length, len(self.stream))
            order = self._permutation(epoch, length)
            shift = np.random.default_rng((self.seed, epoch, 1)).integers(min(length, len(self.stream) - length - 1))
            start = int(order[(within // length) % len(order)]) * length + int(shift)
            out[row] = self.stream[start : start + length + 1]
        return torch.from_numpy(out)


def rows(stream: Stream, length: int) -> Tensor:
    """The stream cut into whole rows [n, length + 1]; neighbours share one token."""
    count = (len(stream) - 1) // length
    index = np.arange(count)[:, None] * length + np.arange(length + 1)
    return torch.from_numpy(stream[index].astype(np.int64))
