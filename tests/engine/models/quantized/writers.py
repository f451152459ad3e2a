"""Writes quantized checkpoints as their formats are documented, one code after the other."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Output features of a word, from its lowest bits."""


@dataclass
class Quantized:
    """Quants that a writer chose, and their dequantized numbers.

    Attributes:
        quants: int [out, in], without a sign.
        zeros: int [out, groups].
        scales: [out, groups].
        group: input features of a group.
    """

    quants: Tensor
    zeros: Tensor
    scales: Tensor
    group: int

    @property
    def numbers(self) -> Tensor:
        """Float32 [out, in]."""
        zeros, scales = (each.float().repeat_interleave(self.group, 1) for each in (self.zeros, self.scales))
        return (self.quants - zeros) * scales


def quantize(
    weight: Tensor, bits: int, group: int, symmetric: bool, dtype: torch.dtype, first_zero: int = 0
) -> Quantized:
    """Quants of a weight [out, in]; zero points of asymmetric ones are at least ``first_zero``."""
    group = weight.shape[1] if group == -1 else group
    groups = weight.float().unflatten(1, (-1, group))
    most = 2**bits - 1
    if symmetric:
        scales = (groups.abs().amax(2) / (most // 2)).to(dtype)
        zeros = torch.full_like(scales, 2 ** (bits - 1), dtype=torch.int64)
    else:
        scales = ((groups.amax(2) - groups.amin(2)) / most).to(dtype)
        zeros = (-groups.amin(2) / scales.float()).round().long().clamp(first_zero, most)
    quants = (groups / scales.float()[..., None]).round().long() + zeros[..., None]
    return Quantized(quants.clamp(0, most).flatten(1), zeros, scales, group)


def words(lines: Tensor, bits: int, order: tuple[int, ...] | None = None) -> Tensor:
    """Int [n, m] of quants as int32 [n, m * bits / 32], the first of each word in its lowest bits."""
    in_word = 32 // bits
    packed = torch.zeros(lines.shape[0], -(-lines.shape[1] // in_word), dtype=torch.int64)
    for n, line in enumerate(lines.tolist()):
        for word in range(packed.shape[1]):
            total = 0
            for place in range(in_word):
                index = word * in_word + (place if order is None else order[place])
                total |= (line[index] if index < len(line) else 0) << (place * bits)
            packed[n, word] = total - 2**32 if total >= 2**31 else total
    return packed.to(torch.int32)


@dataclass
class Format:
    """One way to write weights.

    Attributes:
        name: names it in a test.
        config: ``quantization_config``.
        bits, group, symmetric: of the quants.
    """

    name: str
    config: dict[str, Any]
    bits: int = 4
    group: int = 32
    symmetric: bool = False
    exceptions: tuple[str, ...] = field(default=("lm_head",))

    def tensors(self, weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Tensors of a module with ``weight``, and the numbers that they stand for."""
        method = str(self.config["quant_method"])
        writer = {"awq": _awq, "gptq": _gptq, "compressed-tensors": _compressed, "fp8": _fp8}[method]
        return writer(self, weight)


def _awq(form: Format, weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    quantized = quantize(weight, 4, form.group, False, torch.float16)
    return {
        "qweight": words(quantized.quants.T, 4, AWQ_ORDER),
        "qzeros": words(quantized.zeros.T, 4, AWQ_ORDER),
        "scales": quantized.scales.T.contiguous(),
    }, quantized.numbers


def _gptq(form: Format, weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    less = 0 if form.config.get("checkpoint_format") == "gptq_v2" else 1
    quantized = quantize(weight, form.bits, form.group, form.symmetric, torch.float16, first_zero=less)
    return {
        "qweight": words(quantized.quants, form.bits).T.contiguous(),
        "qzeros": words(quantized.zeros.T - less, form.bits),
        "scales": quantized.scales.T.contiguous(),
        "g_idx": torch.tensor([k // quantized.group for k in range(weight.shape[1])], dtype=torch.int32),
    }, quantized.numbers


def _compressed(form: Format, weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    if form.config["format"] == "float-quantized":
        return _scaled_floats(form, weight)
    quantized = quantize(weight, form.bits, form.group, form.symmetric, torch.bfloat16)
    half = 2 ** (form.bits - 1)
    tensors = {"weight_scale": quantized.scales}
    if form.config["format"] == "int-quantized":
        tensors["weight"] = (quantized.quants - half).to(torch.int8)
        zeros = (quantized.zeros - half).to(torch.int8)
    else:
        tensors["weight_packed"] = words(quantized.quants, form.bits)
        tensors["weight_shape"] = torch.tensor(weight.shape)
        zeros = words(quantized.zeros.T, form.bits).T.contiguous()
    if not form.symmetric:
        tensors["weight_zero_point"] = zeros
    return tensors, quantized.numbers


def _scaled_floats(form: Format, weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    weights = form.config["config_groups"]["group_0"]["weights"]
    strategy = weights["strategy"]
    if strategy == "block":
        floats, scales, numbers = _blocks(weight, *weights["block_structure"])
        return {"weight": floats, "weight_scale": scales}, numbers
    most = weight.abs().amax(1, keepdim=True) if strategy == "channel" else weight.abs().max().view(1)
    scales = (most / 448).bfloat16()
    floats = (weight / scales.float()).clamp(-448, 448).to(torch.float8_e4m3fn)
    return {"weight": floats, "weight_scale": scales}, floats.float() * scales.float()


def _fp8(form: Format, weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    floats, scales, numbers = _blocks(weight, *form.config["weight_block_size"])
    return {"weight": floats, "weight_scale_inv": scales}, numbers


def _blocks(weight: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    out, inner = weight.shape
    floats, numbers = torch.empty(out, inner, dtype=torch.float8_e4m3fn), torch.empty(out, inner)
    scales = torch.empty(-(-out // rows), -(-inner // columns))
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            place = slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns)
            scales[i, j] = weight[place].abs().max() / 448
            floats[place] = (weight[place] / scales[i, j]).clamp(-448, 448).to(torch.float8_e4m3fn)
            numbers[place] = floats[place].float() * scales[i, j]
    return floats, scales, numbers


def scheme(form: str, **weights: Any) -> dict[str, Any]:
    """``quantization_config`` of compressed-tensors with one group."""
    kind = "float" if form == "float-quantized" else "int"
    inputs = None if form == "pack-quantized" else {"num_bits": 8, "type": kind, "strategy": "token", "dynamic": True}
    group = {"targets": ["Linear"], "weights": {"type": kind, "dynamic": False, **weights}, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "quantization_status": "compressed",
    }


def _packed(bits: int, symmetric: bool, group: int) -> dict[str, Any]:
    by = {"strategy": "channel"} if group == -1 else {"strategy": "group", "group_size": group}
    return scheme("pack-quantized", num_bits=bits, symmetric=symmetric, **by)


_AWQ = {"quant_method": "awq", "version": "gemm", "bits": 4, "zero_point": True, "modules_to_not_convert": None}
_GPTQ = {"quant_method": "gptq", "desc_act": False}
_FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [64, 32]}

FORMATS = [
    Format("awq", _AWQ | {"group_size": 32}),
    Format("awq in groups of 64", _AWQ | {"group_size": 64}, group=64),
    Format("awq of whole rows", _AWQ | {"group_size": -1}, group=-1),
    Format("gptq", _GPTQ | {"bits": 4, "group_size": 32, "sym": True}, symmetric=True),
    Format("gptq with zero points", _GPTQ | {"bits": 4, "group_size": 64, "sym": False}, group=64),
    Format(
        "gptq v2 with zero points",
        _GPTQ | {"bits": 4, "group_size": 32, "sym": False, "checkpoint_format": "gptq_v2"},
    ),
    Format("gptq in 8 bits", _GPTQ | {"bits": 8, "group_size": 32, "sym": True}, bits=8, symmetric=True),
    Format("gptq in 8 bits with zero points", _GPTQ | {"bits": 8, "group_size": 32, "sym": False}, bits=8),
    Format("gptq of whole rows", _GPTQ | {"bits": 4, "group_size": -1, "sym": True}, group=-1, symmetric=True),
    Format("packed", _packed(4, True, 32), symmetric=True),
    Format("packed with zero points", _packed(4, False, 32)),
    Format("packed of whole rows", _packed(4, True, -1), group=-1, symmetric=True),
    Format("packed of whole rows with zero points", _packed(4, False, -1), group=-1),
    Format("packed in 8 bits", _packed(8, True, 64), bits=8, group=64, symmetric=True),
    Format("integers", scheme("int-quantized", num_bits=8, strategy="channel"), bits=8, group=-1, symmetric=True),
    Format(
        "integers with zero points",
        scheme("int-quantized", num_bits=8, strategy="channel", symmetric=False),
        bits=8,
        group=-1,
    ),
    Format("floats by tensor", scheme("float-quantized", num_bits=8, strategy="tensor")),
    Format("floats by row", scheme("float-quantized", num_bits=8, strategy="channel")),
    Format("floats by block", scheme("float-quantized", num_bits=8, strategy="block", block_structure=[64, 32])),
    Format("fp8", _FP8),
    Format("fp8 in blocks of 128", _FP8 | {"weight_block_size": [128, 128]}),
]


def rewrite(directory: Path, form: Format) -> dict[str, Tensor]:
    """Quantizes the weights of matmuls in place, but ``form.exceptions``; their dequantized numbers, by name."""
    tensors = load_file(directory / "model.safetensors")
    numbers = {}
    for name in sorted(name for name in tensors if name.endswith(("_proj.weight", "lm_head.weight"))):
        module = name.removesuffix(".weight")
        if module in form.exceptions:
            continue
        stored, numbers[name] = form.tensors(tensors.pop(name).float())
        tensors |= {f"{module}.{part}": tensor.contiguous() for part, tensor in stored.items()}
    save_file(tensors, directory / "model.safetensors")
    configure(directory, form.config)
    return numbers


def configure(directory: Path, quantization: dict[str, Any]) -> None:
    """Writes ``quantization_config`` into config.json."""
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": quantization}))
