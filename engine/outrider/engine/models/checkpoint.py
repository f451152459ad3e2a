"""Tensors of a Hugging Face directory: one ``model.safetensors`` or the shards of an index. Nothing is unpickled."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import prod
from pathlib import Path
from typing import Any, Protocol

from outrider.engine.errors import ModelError
from outrider.engine.models.fields import Fields
from outrider.native.heap import give_memory_back
from outrider.native.quantized import QuantizedWeight
from safetensors import SafetensorError, safe_open
from torch import Tensor

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PREFIX, _BARE, _OUTPUT = "model.", "embed_tokens.weight", "lm_head.weight"
"""What models without a head leave out of the names of their tensors, as Qwen3-Embedding does, and the head."""
_DTYPES = ("F32", "BF16", "F16")
_MAPPED = 256 << 20


class WeightSource(Protocol):
    """The tensors of a model by their Hugging Face names.

    Attributes:
        quantized: whether a tensor is quantized.
        headless: whether it has no output layer because its model only embeds.
    """

    quantized: bool
    headless: bool

    def has(self, name: str) -> bool:
        """Whether there is a tensor of that name."""
        ...

    def take(self, name: str, shape: Sequence[int]) -> Tensor | QuantizedWeight:
        """A tensor of ``shape``; `ModelError` if there is none, or it has another shape or kind."""
        ...

    def finish(self, ignored: Iterable[str] = ()) -> None:
        """`ModelError` if a tensor was not taken whose name ends in none of ``ignored``."""
        ...


class Checkpoint:
    """The tensors of a directory, read one at a time.

    Args:
        directory: directory of the model.
        whole: whether it is a whole model's, so that names without ``model.`` in front get it.
        mapped: bytes of tensors in float32 after which files are mapped anew, since the pages that were read of a
            mapping count as memory.

    Raises:
        ModelError: there are no safetensors, a shard is missing, or a file is damaged.
    """

    quantized = False

    def __init__(self, directory: Path, *, whole: bool = False, mapped: int = _MAPPED) -> None:
        self._directory = directory
        self._files: dict[Path, Any] = {}
        places = self._sharded() if (directory / _INDEX).is_file() else self._single()
        self._left_out = _PREFIX if whole and _BARE in places else ""
        self._places = {self._left_out + name: path for name, path in places.items()}
        self.headless = bool(self._left_out) and _OUTPUT not in places
        self._taken: set[str] = set()
        self._mapped, self._read = mapped, 0

    @property
    def names(self) -> Collection[str]:
        """Names of all tensors."""
        return self._places.keys()

    def has(self, name: str) -> bool:
        """Whether there is a tensor of that name."""
        return name in self._places

    def take(self, name: str, shape: Sequence[int]) -> Tensor:
        """A tensor of ``shape``, with a floating-point dtype of 16 or 32 bits; `ModelError` otherwise."""
        return self.take_stored(name, shape, _DTYPES)

    def take_stored(self, name: str, shape: Sequence[int], dtypes: Collection[str]) -> Tensor:
        """A tensor of ``shape`` as it is stored, in one of ``dtypes`` as safetensors names them; else `ModelError`."""
        self._checked(name, shape, dtypes)
        return self.stored(name)

    def take_part(self, name: str, shape: Sequence[int], *part: slice) -> Tensor:
        """The ``part`` of a tensor that `take` would return, a slice for each axis; no more of the file is read."""
        tensor: Tensor = self._checked(name, shape, _DTYPES)[part]
        return tensor

    def _checked(self, name: str, shape: Sequence[int], dtypes: Collection[str]) -> Any:
        """The tensor in its file; it counts as taken."""
        path = self._place(name)
        self._taken.add(name)
        slice_ = self._open(path).get_slice(name.removeprefix(self._left_out))
        if list(slice_.get_shape()) != list(shape):
            actual = slice_.get_shape()
            raise ModelError(f"{path}: {name} has shape {actual}; by config.json it must be {list(shape)}")
        if slice_.get_dtype() not in dtypes:
            raise ModelError(f"{path}: {name} has dtype {slice_.get_dtype()}; one of {', '.join(dtypes)} is allowed")
        self._read += 4 * prod(shape)
        if self._read > self._mapped:
            self._unmap()
        return slice_

    def stored(self, name: str) -> Tensor:
        """A tensor as it is stored; it does not count as taken."""
        tensor: Tensor = self._open(self._place(name)).get_tensor(name.removeprefix(self._left_out))
        return tensor

    def finish(self, ignored: Iterable[str] = ()) -> None:
        """Closes the files; checks that every tensor was taken, except names that end in one of ``ignored``."""
        endings = tuple(ignored)
        for name in sorted(self._places.keys() - self._taken):
            if not name.endswith(endings):
                raise ModelError(f"{self._places[name]} has a tensor {name} that its config.json has no use for")
        self._unmap()

    def _unmap(self) -> None:
        """Closes the files, and gives back what conversions have freed; a tensor in use keeps its own mapping."""
        self._files.clear()
        give_memory_back()
        self._read = 0

    def _place(self, name: str) -> Path:
        path = self._places.get(name)
        if path is None:
            raise ModelError(f"{self._directory} has no tensor {name}, which its config.json asks for")
        return path

    def _single(self) -> dict[str, Path]:
        path = self._directory / _SINGLE
        if not path.is_file():
            raise ModelError(f"{self._directory} has neither {_SINGLE} nor {_INDEX}{self._pickled()}")
        return dict.fromkeys(self._open(path).keys(), path)

    def _pickled(self) -> str:
        pickles = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in self._directory.glob(pattern))
        return f"; {pickles[0]} is a pickle, which is never loaded" if pickles else ""

    def _sharded(self) -> dict[str, Path]:
        index = Fields.read(self._directory / _INDEX)
        shards = index.within("weight_map")
        if shards is None:
            raise index.wrong("weight_map", "an object of tensor names and file names")
        places = {name: self._directory / _shard(shards, name) for name in shards.values}
        for name, path in places.items():
            if name not in self._open(path).keys():  # noqa: SIM118 (a file, not a mapping)
                raise ModelError(f"{path} has no tensor {name}, which {_INDEX} places there")
        return places

    def _open(self, path: Path) -> Any:
        if path not in self._files:
            if not path.is_file():
                raise ModelError(f"{path} is missing, which {_INDEX} names")
            try:
                self._files[path] = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise ModelError(f"{path} is not a whole safetensors file: {error}") from None
        return self._files[path]


def _shard(shards: Fields, name: str) -> str:
    file = shards.text(name)
    if Path(file).name != file:
        raise shards.wrong(name, "a file name without a folder")
    return file
