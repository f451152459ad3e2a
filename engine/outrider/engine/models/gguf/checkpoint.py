"""The tensors of a GGUF file under their Hugging Face names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from outrider.engine.errors import ModelError
from outrider.engine.models.gguf.config import architecture_of
from outrider.engine.models.gguf.header import GgufFile, TensorPlace
from outrider.engine.models.gguf.names import hugging_face_name
from outrider.engine.models.gguf.rope import FACTORS
from outrider.engine.models.gguf.tensors import PLAIN, TYPES, release, tensor, weight
from outrider.native.quantized import QuantizedWeight, Reordered
from torch import Tensor


class GgufCheckpoint:
    """The tensors of a file, read one at a time.

    Undoes what converters to GGUF change: in ``llama``, the order of the rows of queries and keys; in ``gemma3``, one
    is added to the weights of norms.

    Attributes:
        quantized: whether a tensor is quantized.

    Args:
        file: the file.

    Raises:
        ModelError: the file's architecture or a tensor's type is not supported.
    """

    headless = False  # the configuration says that a file without an output layer is tied

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self._architecture = architecture_of(file)
        self._heads = _heads(file, self._architecture)
        names = {name: hugging_face_name(self._architecture, name) for name in file.tensors}
        self._places = {known: (name, file.tensors[name]) for name, known in names.items() if known is not None}
        self._unknown = [name for name, known in names.items() if known is None and name != FACTORS]
        for name, place in file.tensors.items():
            if place.type.name not in TYPES:
                raise ModelError(
                    f"{file.path}: {name} has the type {place.type.name}; one of {', '.join(TYPES)} is allowed"
                )
        self.quantized = any(place.type.name not in PLAIN for place in file.tensors.values())
        self._taken: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether there is a tensor of that Hugging Face name."""
        return name in self._places

    def take(self, name: str, shape: Sequence[int]) -> Tensor | QuantizedWeight:
        """A tensor of ``shape``: float32, float16 or bfloat16, or quants; `ModelError` without such a tensor.

        A Tensor may be a part of the map and must not be written to.
        """
        own, place = self._place(name)
        if place.shape != tuple(shape):
            raise ModelError(
                f"{self._file.path}: {own} has shape {list(place.shape)}; by its metadata it must be {list(shape)}"
            )
        self._taken.add(name)
        if place.type.name in PLAIN:
            return self._plain(name, tensor(self._file, place))
        if len(shape) != 2:
            raise ModelError(
                f"{self._file.path}: {own} has the type {place.type.name}; one of {', '.join(PLAIN)} is allowed"
            )
        order = self._order(name)
        found = weight(self._file, place)
        return found if order is None else Reordered(found, order)

    def release(self, name: str | None = None) -> None:
        """Gives the memory of a tensor's mapped pages back, or of all tensors' pages.

        A Tensor of `take` stays valid: its pages are read from the file again when they are used.
        """
        places = [place for _, place in self._places.values()] if name is None else [self._place(name)[1]]
        for place in places:
            release(self._file, place)

    def finish(self, ignored: Iterable[str] = ()) -> None:
        """Checks that every tensor was taken, except names that end in one of ``ignored``; gives mapped pages back."""
        endings = tuple(ignored)
        left = [self._places[name][0] for name in self._places.keys() - self._taken if not name.endswith(endings)]
        for name in sorted([*left, *self._unknown])[:1]:
            raise ModelError(f"{self._file.path} has a tensor {name} that its metadata has no use for")
        self.release()

    def _place(self, name: str) -> tuple[str, TensorPlace]:
        if name not in self._places:
            raise ModelError(f"{self._file.path} has no tensor for {name}, which its metadata asks for")
        return self._places[name]

    def _plain(self, name: str, found: Tensor) -> Tensor:
        if self._architecture == "gemma3" and name.endswith("norm.weight"):
            return found.float() - 1
        order = self._order(name)
        return found if order is None else found[order]

    def _order(self, name: str) -> Tensor | None:
        """The order in which a tensor's rows are those of Hugging Face; None if they are as they lie in the file."""
        part = name.split(".")[-2]
        if self._architecture != "llama" or part not in self._heads:
            return None
        return rotary_order(self._file, self._places[name][0], self._heads[part])


def rotary_order(file: GgufFile, name: str, heads: int) -> Tensor:
    """The order that gives the rows of queries or keys back, which converters of Llama's models reorder for RoPE."""
    rows = file.tensors[name].shape[0]
    if rows % (2 * heads):
        raise ModelError(f"{file.path}: {name} has {rows} rows for {heads} heads")
    return torch.arange(rows).view(heads, -1, 2).transpose(1, 2).flatten()


def _heads(file: GgufFile, architecture: str) -> dict[str, int]:
    """Heads of queries and keys, by the projections whose rows converters reorder."""
    key = f"{architecture}.attention.head_count"
    heads = file.metadata.count(key)
    return {"q_proj": heads, "k_proj": file.metadata.count(f"{key}_kv", heads)}
