"""The formats of ``compressed-tensors`` (https://github.com/vllm-project/compressed-tensors) that keep whole weights.

- ``pack-quantized``: ``weight_packed`` int32 [out_features, in_features * bits / 32] has consecutive input features in
  a word, the first in the lowest bits, signed quants plus half the range. ``weight_zero_point`` has the same for
  consecutive output features, int32 [out_features * bits / 32, groups].
- ``int-quantized``: ``weight`` int8 [out_features, in_features].
- ``float-quantized``: ``weight`` float8_e4m3fn [out_features, in_features].

``weight_scale`` is [out_features, groups]; one for each block, output feature or tensor of floats. Where activations
are to be quantized as they come, only those beside floats are. ``kv_cache_scheme`` has no effect: ``kv_dtype`` alone
says how keys and values are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from outrider.engine.errors import ModelError
from outrider.engine.models.checkpoint import Checkpoint
from outrider.engine.models.fields import Fields
from outrider.engine.models.quantized.float8 import WHOLE, block_size, blocks_of, stored_floats
from outrider.engine.models.quantized.method import (
    SCALES,
    WORD_BITS,
    StoredQuants,
    group_size,
    one_of,
    quants_at,
    with_zeros,
)
from outrider.native.quantized import QuantFormat, Quants
from torch import Tensor

_TYPES = {"pack-quantized": "int", "int-quantized": "int", "float-quantized": "float"}
_BITS = {"pack-quantized": (4, 8), "int-quantized": (8,), "float-quantized": (8,)}
_STRATEGIES = {
    "pack-quantized": ("group", "channel"),
    "int-quantized": ("channel",),
    "float-quantized": ("channel", "tensor", "block"),
}
_NO_ORDER = (None, False, "weight", "static")
"""Orders of input features in calibration that leave groups of consecutive ones."""


@dataclass(frozen=True, slots=True)
class Group:
    """How some modules are quantized.

    Attributes:
        form: a key of `_TYPES`.
        targets: names of modules, expressions after ``re:``, or ``Linear`` for all.
        bits: of a quant.
        group: input features that share a scale; -1 is all of them.
        symmetric: whether the zero point is half the range.
        block: output and input features of floats that share a scale; None is an output feature or the tensor.
        rounds_rows: whether activations are to be quantized as they come.
    """

    form: str
    targets: tuple[str, ...]
    bits: int
    group: int
    symmetric: bool
    block: tuple[int, int] | None
    rounds_rows: bool

    @classmethod
    def parse(cls, fields: Fields, form: str) -> Group:
        """One of ``config_groups``; `ModelError` if it is not supported."""
        form = one_of(fields, "format", tuple(_TYPES), form)
        weights = fields.within("weights")
        if weights is None:
            raise fields.wrong("weights", "an object")
        if fields.values.get("output_activations") is not None:
            raise fields.wrong("output_activations", "absent")
        if (inputs := fields.within("input_activations")) is not None:
            one_of(inputs, "dynamic", (True,))
        one_of(weights, "type", (_TYPES[form],), "int")
        one_of(weights, "dynamic", (False,), False)
        one_of(weights, "actorder", _NO_ORDER)
        bits = one_of(weights, "num_bits", _BITS[form], 8)
        strategy = one_of(weights, "strategy", _STRATEGIES[form])
        symmetric = one_of(weights, "symmetric", (True,) if form == "float-quantized" else (True, False), True)
        group = group_size(weights) if strategy == "group" else -1
        block = block_size(weights, "block_structure") if strategy == "block" else None
        return cls(form, _targets(fields), bits, group, symmetric, block, rounds_rows=inputs is not None)

    def read(self, source: Checkpoint, module: str, shape: tuple[int, int]) -> StoredQuants:
        """See `Method.weight`."""
        if self.form == "float-quantized":
            return self._floats(source, module, shape)
        (out, inner), bits, middle = shape, self.bits, 2 ** (self.bits - 1)
        group = inner if self.group == -1 else self.group
        if inner % group or inner % 32:
            raise ModelError(
                f"{module} has {inner} input features, which must be a multiple of 32 and of their groups of {group}"
            )
        quants = self._quants(source, module, shape)
        scales = source.take_stored(f"{module}.weight_scale", (out, inner // group), SCALES)
        zeros = None if self.symmetric else self._zeros(source, module, (out, inner // group))

        def read(rows: Tensor) -> Quants:
            return with_zeros(quants(rows), scales[rows], None if zeros is None else zeros(rows))

        form = QuantFormat(bits, group, middle) if self.symmetric else QuantFormat(bits, group, has_minima=True)
        return StoredQuants(form, shape, read)

    def _quants(self, source: Checkpoint, module: str, shape: tuple[int, int]) -> Callable[[Tensor], Tensor]:
        out, inner = shape
        if self.form == "int-quantized":
            signed = source.take_stored(f"{module}.weight", shape, ("I8",))
            return lambda rows: signed[rows].view(torch.uint8) ^ 128
        if source.has(f"{module}.weight_shape"):
            _check_shape(source, module, shape)
        words = source.take_stored(f"{module}.weight_packed", (out, inner * self.bits // WORD_BITS), ("I32",))
        places = torch.arange(inner)
        return lambda rows: quants_at(words[rows], places, self.bits)

    def _zeros(self, source: Checkpoint, module: str, shape: tuple[int, int]) -> Callable[[Tensor], Tensor]:
        """Zero points of rows, as unsigned quants have them."""
        name, (out, groups) = f"{module}.weight_zero_point", shape
        if self.form == "int-quantized":
            signed = source.take_stored(name, shape, ("I8",))
            return lambda rows: signed[rows].view(torch.uint8) ^ 128
        words = source.take_stored(name, (-(-out * self.bits // WORD_BITS), groups), ("I32",)).T
        return lambda rows: quants_at(words, rows, self.bits).T

    def _floats(self, source: Checkpoint, module: str, shape: tuple[int, int]) -> StoredQuants:
        name, block = f"{module}.weight_scale", self.block
        if block is not None:
            scales = source.take_stored(name, blocks_of(shape, block), SCALES)
        else:
            stored = source.stored(name)
            whole = stored.numel() == 1
            block = shape[0] if whole else 1, WHOLE
            scales = source.take_stored(name, tuple(stored.shape) if whole else (shape[0], 1), SCALES).view(-1, 1)
        return stored_floats(source, module, shape, scales, block, rounds_rows=self.rounds_rows)


@dataclass(frozen=True, slots=True)
class CompressedTensors:
    """Modules in groups, each quantized in its own way.

    Attributes:
        groups: those that name modules come before those that name all.
    """

    groups: tuple[Group, ...]

    @classmethod
    def parse(cls, fields: Fields) -> CompressedTensors:
        """The method of a ``quantization_config``; `ModelError` if it is not supported."""
        form = one_of(fields, "format", tuple(_TYPES))
        if fields.values.get("transform_config"):
            raise fields.wrong("transform_config", "absent")
        if (sparsity := fields.within("sparsity_config")) is not None:
            one_of(sparsity, "format", ("dense",), "dense")
        named = fields.within("config_groups")
        if named is None or not named.values:
            raise fields.wrong("config_groups", "an object of at least one group")
        groups = [Group.parse(_group(named, name), form) for name in named.values]
        return cls(tuple(sorted(groups, key=lambda group: "Linear" in group.targets)))

    @property
    def floats(self) -> bool:
        """See `Method`."""
        return all(group.form == "float-quantized" for group in self.groups)

    def is_quantized(self, source: Checkpoint, module: str) -> bool:
        """See `Method`."""
        return source.has(f"{module}.weight_scale")

    def weight(self, source: Checkpoint, module: str, shape: tuple[int, int]) -> StoredQuants:
        """See `Method`."""
        for group in self.groups:
            if any(_names(target, module) for target in group.targets):
                return group.read(source, module, shape)
        raise ModelError(f"{module} is quantized, but no target of config.json's config_groups names it")


def _group(named: Fields, name: str) -> Fields:
    group = named.within(name)
    if group is None:
        raise named.wrong(name, "an object")
    return group


def _targets(fields: Fields) -> tuple[str, ...]:
    targets = fields.values.get("targets")
    if not isinstance(targets, list) or not all(isinstance(target, str) and _is_sound(target) for target in targets):
        raise fields.wrong("targets", 'a list of names of modules, of expressions after "re:", or of "Linear"')
    return tuple(targets)


def _is_sound(target: str) -> bool:
    try:
        re.compile(target.removeprefix("re:"))
    except re.error:
        return not target.startswith("re:")
    return True


def _names(target: str, module: str) -> bool:
    if target.startswith("re:"):
        return re.match(target[3:], module) is not None
    return target in ("Linear", module)


def _check_shape(source: Checkpoint, module: str, shape: tuple[int, int]) -> None:
    name = f"{module}.weight_shape"
    stored = source.take_stored(name, (2,), ("I64", "I32")).tolist()
    if stored != list(shape):
        raise ModelError(f"{name} is {stored}; by config.json it must be {list(shape)}")
