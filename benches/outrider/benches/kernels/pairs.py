"""Each op beside torch's implementation, on the same data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from outrider.benches.kernels import attention
from outrider.benches.kernels.cases import MOVED, Case
from outrider.kernels.experts import triton as experts
from outrider.kernels.kv_compact import triton as kv_compact
from outrider.kernels.linear import (
    GroupedWeight,
    Quantization,
    ScaledWeight,
    quantize_fp8,
    quantize_int4,
    quantize_int8,
)
from outrider.kernels.linear import triton as linear
from outrider.kernels.linear.packed_weight import PackedWeight, pack_weight
from outrider.kernels.linear.quantized_packing import pack_quantized
from outrider.kernels.philox import triton as philox
from outrider.kernels.pool import KvPool
from outrider.kernels.race_sample import Draws
from outrider.kernels.race_sample import triton as race_sample
from outrider.kernels.rms_norm import triton as rms_norm
from outrider.kernels.rope_kv_write import triton as rope_kv_write
from outrider.kernels.shapes import ModelShape
from outrider.kernels.swiglu import triton as swiglu
from outrider.native.quantized import Quants, QuantsInMemory, dequantized
from torch import Tensor
from torch.nn import functional

_TEMPERATURE = 0.5
_QUANTIZE: dict[Quantization, Callable[[Tensor], ScaledWeight | GroupedWeight]] = {
    "int8": quantize_int8,
    "int4": quantize_int4,
    "fp8": quantize_fp8,
}
Run = Callable[[], Tensor]
Build = Callable[[Case, torch.device], "Pair"]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two implementations with the same result, up to rounding.

    Attributes:
        ours: the Triton kernel.
        theirs: torch's implementation, a function of ``inputs``.
        inputs: the data, equal to ours.
        fuses: whether torch's compiler compiles it.
    """

    ours: Run
    theirs: Callable[..., Tensor]
    inputs: tuple[Tensor, ...]
    fuses: bool = True


PAIRS: dict[str, Build] = {}
"""By op."""


def _pair(build: Build) -> Build:
    PAIRS[build.__name__.removeprefix("_")] = build
    return build


def _noise(case: Case, device: torch.device, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=case.shape.dtype, device=device)


def _slots(case: Case, device: torch.device) -> tuple[int, Tensor]:
    """Pages of a pool for the step's rows, and their slots, in random order."""
    pages = -(-case.step.rows // case.shape.page_size)
    return pages, torch.randperm(pages * case.shape.page_size, device=device)[: case.step.rows]


@_pair
def _rms_norm(case: Case, device: torch.device) -> Pair:
    x, add = (_noise(case, device, case.step.rows, case.shape.hidden) for _ in range(2))
    weight, eps = torch.rand(case.shape.hidden, device=device), torch.tensor(1e-5, device=device)
    add.zero_()
    inputs = (x, add, weight.to(x.dtype))
    return Pair(lambda: rms_norm.rms_norm(x, weight, eps, add=add), _torch_rms_norm, inputs)


def _torch_rms_norm(x: Tensor, add: Tensor, weight: Tensor) -> Tensor:
    return functional.rms_norm(x.add_(add), weight.shape, weight, 1e-5)


@_pair
def _rope_kv_write(case: Case, device: torch.device) -> Pair:
    shape, rows = case.shape, case.step.rows
    qkv, (pages, slots) = _noise(case, device, rows, shape.qkv), _slots(case, device)
    angles = torch.rand(rows, 1, shape.head_dim // 2, device=device) * 9
    rope = torch.polar(torch.ones_like(angles), angles)
    pool = KvPool(1, pages, shape.page_size, shape.kv_heads, shape.head_dim, shape.kv_dtype, device)
    plain = torch.zeros(pool.data.shape[1], 2, shape.kv_heads, shape.head_dim, dtype=shape.dtype, device=device)
    queries = torch.empty(rows, shape.heads, shape.head_dim, dtype=shape.dtype, device=device)

    def ours() -> Tensor:
        rope_kv_write.rope_kv_write(qkv, rope, rope, queries, pool, 0, slots)
        return queries

    return Pair(ours, _torch_rope_kv_write, (qkv, angles.cos(), angles.sin(), plain, slots))


def _torch_rope_kv_write(qkv: Tensor, cos: Tensor, sin: Tensor, plain: Tensor, slots: Tensor) -> Tensor:
    kv_heads, head_dim = plain.shape[2:]
    queries, keys, values = qkv.view(len(qkv), -1, head_dim).tensor_split((-2 * kv_heads, -kv_heads), 1)
    rotating = torch.cat([queries, keys], 1).float()
    even, odd = rotating[..., 0::2], rotating[..., 1::2]
    rotated = torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(2).to(qkv.dtype)
    plain[slots, 0] = rotated[:, -kv_heads:]
    plain[slots, 1] = values
    return rotated[:, :-kv_heads].contiguous()


@_pair
def _kv_compact(case: Case, device: torch.device) -> Pair:
    shape, sequences = case.shape, case.step.sequences
    pages = -(-case.step.nodes // shape.page_size)
    pool = KvPool(
        shape.layers, sequences * pages, shape.page_size, shape.kv_heads, shape.head_dim, shape.kv_dtype, device
    )
    first = torch.arange(sequences, device=device)[:, None] * (pages * shape.page_size)
    places = (first + torch.arange(MOVED, device=device)).flatten()
    sources = places + case.step.nodes - MOVED
    offsets = torch.arange(sequences + 1, dtype=torch.int32, device=device) * MOVED
    data = pool.data.view(torch.uint8)
    data.random_(0, 100)

    def ours() -> Tensor:
        kv_compact.kv_compact_batch(pool, offsets, sources, places)
        return data

    return Pair(ours, _torch_kv_compact, (data.clone(), sources, places), fuses=False)


def _torch_kv_compact(data: Tensor, sources: Tensor, places: Tensor) -> Tensor:
    data[:, places] = data[:, sources]
    return data


@_pair
def _swiglu(case: Case, device: torch.device) -> Pair:
    gate_up = _noise(case, device, case.step.rows, 2 * case.shape.intermediate)
    return Pair(lambda: swiglu.swiglu(gate_up), _torch_swiglu, (gate_up,))


def _torch_swiglu(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, -1)
    return functional.silu(gate) * up


def random_weight(shape: ModelShape, part: str, device: torch.device) -> tuple[PackedWeight, Tensor]:
    """A weight of noise as a model of ``shape`` keeps it for a matmul, and the numbers that it stands for."""
    outputs, inputs = shape.matmuls[part]
    weight = torch.randn(outputs, inputs, dtype=shape.dtype, device=device)
    form, quantization = (None, None) if part == "logits" else (shape.quants, shape.quantization)
    if form is not None and form.floats:
        bits = weight.to(torch.float8_e4m3fn).view(torch.uint8)
        floats = QuantsInMemory(form, Quants(bits, torch.rand(outputs, -(-inputs // form.group), device=device) + 0.5))
        return pack_quantized(floats, shape.dtype, device), dequantized(floats, shape.dtype).to(device)
    ours = pack_weight(weight, quantization)
    if quantization is not None:
        weight = _QUANTIZE[quantization](weight).dequantized().to(weight.dtype)
    return ours, weight


@_pair
def _linear(case: Case, device: torch.device) -> Pair:
    x = _noise(case, device, case.step.rows, case.shape.matmuls[case.part][1])
    ours, weight = random_weight(case.shape, case.part, device)
    return Pair(lambda: linear.linear(x, ours, strict=case.strict), functional.linear, (x, weight), fuses=False)


@_pair
def _experts(case: Case, device: torch.device) -> Pair:
    shape, rows = case.shape, case.step.rows
    x, scores = _noise(case, device, rows, shape.hidden), torch.randn(rows, shape.experts, device=device)
    gate_up = _noise(case, device, shape.experts, 2 * shape.intermediate, shape.hidden) / shape.hidden**0.5
    down = _noise(case, device, shape.experts, shape.hidden, shape.intermediate) / shape.intermediate**0.5
    layer = experts.StackedExperts(gate_up, down, shape.active, normed=True)
    theirs = partial(_torch_experts, shape.active)
    return Pair(lambda: layer(x, scores), theirs, (x, scores, gate_up, down), fuses=False)


def _torch_experts(active: int, x: Tensor, scores: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """Sorts pairs of a row and an expert by expert, without the host, for torch's grouped matmuls."""
    shares, chosen = scores.softmax(-1).topk(active)
    shares /= shares.sum(-1, keepdim=True)
    order = chosen.flatten().argsort()
    each = torch.arange(len(gate_up), device=x.device)
    ends = torch.searchsorted(chosen.flatten()[order], each, right=True, out_int32=True)
    between = _torch_swiglu(functional.grouped_mm(x[order // active], gate_up.mT, offs=ends))
    results = functional.grouped_mm(between, down.mT, offs=ends) * shares.flatten()[order, None]
    return torch.zeros(x.shape, device=x.device).index_add_(0, order // active, results)


@_pair
def _tree_attention(case: Case, device: torch.device) -> Pair:
    plan, pool = attention.plan(case, device)
    inputs = attention.dense(case, plan, pool)
    return Pair(lambda: plan.attend(0), attention.torch_attention, inputs, fuses=False)


@_pair
def _race_sample(case: Case, device: torch.device) -> Pair:
    rows, vocabulary = case.step.rows, case.shape.vocabulary
    logits = _noise(case, device, rows, vocabulary)
    seeds, positions = torch.arange(rows, device=device), torch.full((rows,), case.step.context, device=device)
    draws = Draws(seeds, positions, torch.full((rows,), _TEMPERATURE, device=device))
    noise = philox.log_exponentials(seeds, positions, vocabulary)
    return Pair(lambda: race_sample.draw(logits, draws), _torch_race_sample, (logits, noise))


def _torch_race_sample(logits: Tensor, noise: Tensor) -> Tensor:
    """Takes variates that were computed before."""
    return (logits.float() / _TEMPERATURE - noise).argmax(-1)
