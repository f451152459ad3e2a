"""A quantized Hugging Face directory behind the same methods as a plain one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from outrider.engine.models.checkpoint import Checkpoint
from outrider.engine.models.fields import Fields
from outrider.engine.models.quantized.awq import Awq
from outrider.engine.models.quantized.compressed_tensors import CompressedTensors
from outrider.engine.models.quantized.float8 import Float8
from outrider.engine.models.quantized.gptq import Gptq
from outrider.engine.models.quantized.method import Method, one_of
from outrider.native.quantized import QuantizedWeight
from torch import Tensor

_METHODS: Mapping[str, Callable[[Fields], Method]] = {
    "awq": Awq.parse,
    "gptq": Gptq.parse,
    "compressed-tensors": CompressedTensors.parse,
    "fp8": Float8.parse,
}


class QuantizedCheckpoint:
    """The tensors of a directory, some of them quantized.

    A module is quantized where its file holds quants. Modules that the configuration excepts have none.

    Attributes:
        quantized: whether a tensor is quantized.

    Args:
        source: the directory's tensors.
        quantization: ``quantization_config`` of its config.json.

    Raises:
        ModelError: the method, or a property of it, is not supported.
    """

    quantized = True

    def __init__(self, source: Checkpoint, quantization: Fields) -> None:
        self._source, self.headless = source, source.headless
        self._method = _METHODS[one_of(quantization, "quant_method", tuple(_METHODS))](quantization)
        self._modules: list[str] = []

    @property
    def floats(self) -> bool:
        """Whether quants are eight-bit floats."""
        return self._method.floats

    def has(self, name: str) -> bool:
        """Whether there is a tensor of that name, or a module in quants whose weight it names."""
        module = name.removesuffix(".weight")
        return self._source.has(name) or (module != name and self._method.is_quantized(self._source, module))

    def take(self, name: str, shape: Sequence[int]) -> Tensor | QuantizedWeight:
        """A tensor of ``shape``; quants where the file holds quants; `ModelError` if it is missing or does not fit."""
        module = name.removesuffix(".weight")
        if module == name or len(shape) != 2 or not self._method.is_quantized(self._source, module):
            return self._source.take(name, shape)
        self._modules.append(module)
        return self._method.weight(self._source, module, (shape[0], shape[1]))

    def finish(self, ignored: Iterable[str] = ()) -> None:
        """Checks that every tensor was taken, as `Checkpoint.finish` does; biases of nothing but zeros are no matter.

        Some writers give every quantized module a bias.
        """
        biases = [f"{module}.bias" for module in self._modules if self._is_zero(f"{module}.bias")]
        self._source.finish((*ignored, *biases))

    def _is_zero(self, bias: str) -> bool:
        return self._source.has(bias) and not self._source.stored(bias).any()


def open_checkpoint(directory: Path) -> Checkpoint | QuantizedCheckpoint:
    """The tensors of a Hugging Face directory; `ModelError` if it, or how it is quantized, is not supported."""
    quantization = Fields.read(directory / "config.json").within("quantization_config")
    source = Checkpoint(directory, whole=True)
    return source if quantization is None else QuantizedCheckpoint(source, quantization)
